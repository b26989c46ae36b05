"""Classes, interfaces and slots of [MC-MQAC] as a node serves them: row by row."""

from __future__ import annotations

import pytest

from tests.conformance.dcom_rows import classes_hold, holds, interface_holds


@pytest.mark.spec("AC-1.9-01", "AC-1.9-02", "AC-1.9-03", "AC-1.9-04", "AC-1.9-05")
def test_classes_1() -> None:
    classes_hold("AC-1.9-01", "AC-1.9-02", "AC-1.9-03", "AC-1.9-04", "AC-1.9-05")


@pytest.mark.spec("AC-1.9-06", "AC-1.9-07", "AC-1.9-08", "AC-1.9-09", "AC-1.9-10")
def test_classes_2() -> None:
    classes_hold("AC-1.9-06", "AC-1.9-07", "AC-1.9-08", "AC-1.9-09", "AC-1.9-10")


@pytest.mark.spec("AC-1.9-11", "AC-1.9-12", "AC-1.9-13", "AC-1.9-14", "AC-1.9-15")
def test_classes_3() -> None:
    classes_hold("AC-1.9-11", "AC-1.9-12", "AC-1.9-13", "AC-1.9-14", "AC-1.9-15")


@pytest.mark.spec("AC-1.9-16", "AC-1.9-18", "AC-1.9-19", "AC-1.9-20")
def test_interfaces_1() -> None:
    for row in ("AC-1.9-16", "AC-1.9-18", "AC-1.9-19", "AC-1.9-20"):
        interface_holds(row)


@pytest.mark.spec("AC-1.9-21", "AC-1.9-22", "AC-1.9-23", "AC-1.9-24", "AC-1.9-25")
def test_interfaces_2() -> None:
    for row in ("AC-1.9-21", "AC-1.9-22", "AC-1.9-23", "AC-1.9-24", "AC-1.9-25"):
        interface_holds(row)


@pytest.mark.spec("AC-1.9-26", "AC-1.9-27", "AC-1.9-28", "AC-1.9-29", "AC-1.9-30")
def test_interfaces_3() -> None:
    for row in ("AC-1.9-26", "AC-1.9-27", "AC-1.9-28", "AC-1.9-29", "AC-1.9-30"):
        interface_holds(row)


@pytest.mark.spec("AC-1.9-31", "AC-1.9-32", "AC-1.9-33", "AC-1.9-34", "AC-1.9-35")
def test_interfaces_4() -> None:
    for row in ("AC-1.9-31", "AC-1.9-32", "AC-1.9-33", "AC-1.9-34", "AC-1.9-35"):
        interface_holds(row)


@pytest.mark.spec("AC-1.9-36", "AC-1.9-37", "AC-1.9-38", "AC-1.9-39", "AC-1.9-40")
def test_interfaces_5() -> None:
    for row in ("AC-1.9-36", "AC-1.9-37", "AC-1.9-38", "AC-1.9-39", "AC-1.9-40"):
        interface_holds(row)


@pytest.mark.spec("AC-1.9-41", "AC-1.9-42", "AC-1.9-43", "AC-1.9-44", "AC-1.9-45")
def test_interfaces_6() -> None:
    for row in ("AC-1.9-41", "AC-1.9-42", "AC-1.9-43", "AC-1.9-44", "AC-1.9-45"):
        interface_holds(row)


@pytest.mark.spec("AC-1.9-46", "AC-1.9-47", "AC-1.9-48", "AC-1.9-49", "AC-1.9-50")
def test_interfaces_7() -> None:
    for row in ("AC-1.9-46", "AC-1.9-47", "AC-1.9-48", "AC-1.9-49", "AC-1.9-50"):
        interface_holds(row)


@pytest.mark.spec("AC-1.9-51", "AC-1.9-52", "AC-1.9-53", "AC-1.9-54", "AC-1.9-55")
def test_interfaces_8() -> None:
    for row in ("AC-1.9-51", "AC-1.9-52", "AC-1.9-53", "AC-1.9-54", "AC-1.9-55"):
        interface_holds(row)


@pytest.mark.spec("AC-1.9-56", "AC-1.9-57", "AC-1.9-58", "AC-1.9-59", "AC-1.9-60")
def test_interfaces_9() -> None:
    for row in ("AC-1.9-56", "AC-1.9-57", "AC-1.9-58", "AC-1.9-59", "AC-1.9-60"):
        interface_holds(row)


@pytest.mark.spec("AC-1.9-61", "AC-1.9-62", "AC-1.9-63")
def test_interfaces_10() -> None:
    for row in ("AC-1.9-61", "AC-1.9-62", "AC-1.9-63"):
        interface_holds(row)


@pytest.mark.spec(
    "AC-3.2.4.1.1-06", "AC-3.2.4.2.1-12", "AC-3.2.4.2.2-04", "AC-3.2.4.2.3-03", "AC-3.2.4.2.4-03"
)
def test_slots_of_application_1() -> None:
    for row in (
        "AC-3.2.4.1.1-06",
        "AC-3.2.4.2.1-12",
        "AC-3.2.4.2.2-04",
        "AC-3.2.4.2.3-03",
        "AC-3.2.4.2.4-03",
    ):
        holds(row)


@pytest.mark.spec(
    "AC-3.2.4.2.5-03", "AC-3.2.4.2.6-02", "AC-3.2.4.2.7-02", "AC-3.2.4.3.1-04", "AC-3.2.4.3.2-04"
)
def test_slots_of_application_2() -> None:
    for row in (
        "AC-3.2.4.2.5-03",
        "AC-3.2.4.2.6-02",
        "AC-3.2.4.2.7-02",
        "AC-3.2.4.3.1-04",
        "AC-3.2.4.3.2-04",
    ):
        holds(row)


@pytest.mark.spec(
    "AC-3.2.4.3.3-04", "AC-3.2.4.3.4-04", "AC-3.2.4.3.5-03", "AC-3.2.4.3.7-02", "AC-3.2.4.3.8-04"
)
def test_slots_of_application_3() -> None:
    for row in (
        "AC-3.2.4.3.3-04",
        "AC-3.2.4.3.4-04",
        "AC-3.2.4.3.5-03",
        "AC-3.2.4.3.7-02",
        "AC-3.2.4.3.8-04",
    ):
        holds(row)


@pytest.mark.spec("AC-3.2.4.3.9-04", "AC-3.2.4.3.10-04")
def test_slots_of_application_4() -> None:
    for row in ("AC-3.2.4.3.9-04", "AC-3.2.4.3.10-04"):
        holds(row)


@pytest.mark.spec(
    "AC-3.3.4.1.1-10", "AC-3.3.4.1.2-03", "AC-3.3.4.1.3-03", "AC-3.3.4.1.4-04", "AC-3.3.4.1.5-04"
)
def test_slots_of_management_1() -> None:
    for row in (
        "AC-3.3.4.1.1-10",
        "AC-3.3.4.1.2-03",
        "AC-3.3.4.1.3-03",
        "AC-3.3.4.1.4-04",
        "AC-3.3.4.1.5-04",
    ):
        holds(row)


@pytest.mark.spec("AC-3.3.4.1.6-04", "AC-3.3.4.1.7-04", "AC-3.3.4.1.8-04", "AC-3.3.4.1.9-05")
def test_slots_of_management_2() -> None:
    for row in ("AC-3.3.4.1.6-04", "AC-3.3.4.1.7-04", "AC-3.3.4.1.8-04", "AC-3.3.4.1.9-05"):
        holds(row)


@pytest.mark.spec("AC-3.4.4.1.1-04", "AC-3.4.4.1.2-04", "AC-3.4.4.1.3-04")
def test_slots_of_queue_management_1() -> None:
    for row in ("AC-3.4.4.1.1-04", "AC-3.4.4.1.2-04", "AC-3.4.4.1.3-04"):
        holds(row)


@pytest.mark.spec(
    "AC-3.5.4.1.1-04", "AC-3.5.4.1.2-04", "AC-3.5.4.1.3-05", "AC-3.5.4.1.4-05", "AC-3.5.4.1.5-05"
)
def test_slots_of_outgoing_queue_management_1() -> None:
    for row in (
        "AC-3.5.4.1.1-04",
        "AC-3.5.4.1.2-04",
        "AC-3.5.4.1.3-05",
        "AC-3.5.4.1.4-05",
        "AC-3.5.4.1.5-05",
    ):
        holds(row)


@pytest.mark.spec("AC-3.5.4.1.6-05")
def test_slots_of_outgoing_queue_management_2() -> None:
    holds("AC-3.5.4.1.6-05")


@pytest.mark.spec("AC-3.6.4.1.1-04", "AC-3.6.4.1.2-02")
def test_slots_of_transaction_dispenser_1() -> None:
    for row in ("AC-3.6.4.1.1-04", "AC-3.6.4.1.2-02"):
        holds(row)


@pytest.mark.spec("AC-3.7.4.1.1-05", "AC-3.7.4.1.2-02")
def test_slots_of_coordinated_transaction_dispenser_1() -> None:
    for row in ("AC-3.7.4.1.1-05", "AC-3.7.4.1.2-02"):
        holds(row)


@pytest.mark.spec(
    "AC-3.8.4.1.1-06", "AC-3.8.4.1.2-06", "AC-3.8.4.1.3-04", "AC-3.9.4.1.1-03", "AC-3.9.4.1.2-04"
)
def test_slots_of_transaction_1() -> None:
    for row in (
        "AC-3.8.4.1.1-06",
        "AC-3.8.4.1.2-06",
        "AC-3.8.4.1.3-04",
        "AC-3.9.4.1.1-03",
        "AC-3.9.4.1.2-04",
    ):
        holds(row)


@pytest.mark.spec("AC-3.9.4.1.3-04", "AC-3.9.4.2.1-04", "AC-3.9.4.2.2-02", "AC-3.9.4.3.1-03")
def test_slots_of_transaction_2() -> None:
    for row in ("AC-3.9.4.1.3-04", "AC-3.9.4.2.1-04", "AC-3.9.4.2.2-02", "AC-3.9.4.3.1-03"):
        holds(row)


@pytest.mark.spec(
    "AC-3.10.4.1.1-03",
    "AC-3.10.4.1.2-02",
    "AC-3.10.4.1.4-02",
    "AC-3.10.4.1.6-02",
    "AC-3.10.4.1.8-02",
)
def test_slots_of_queue_info_1() -> None:
    for row in (
        "AC-3.10.4.1.1-03",
        "AC-3.10.4.1.2-02",
        "AC-3.10.4.1.4-02",
        "AC-3.10.4.1.6-02",
        "AC-3.10.4.1.8-02",
    ):
        holds(row)


@pytest.mark.spec(
    "AC-3.10.4.1.10-03",
    "AC-3.10.4.1.11-02",
    "AC-3.10.4.1.13-02",
    "AC-3.10.4.1.15-03",
    "AC-3.10.4.1.17-02",
)
def test_slots_of_queue_info_2() -> None:
    for row in (
        "AC-3.10.4.1.10-03",
        "AC-3.10.4.1.11-02",
        "AC-3.10.4.1.13-02",
        "AC-3.10.4.1.15-03",
        "AC-3.10.4.1.17-02",
    ):
        holds(row)


@pytest.mark.spec(
    "AC-3.10.4.1.19-02",
    "AC-3.10.4.1.20-02",
    "AC-3.10.4.1.21-02",
    "AC-3.10.4.1.23-03",
    "AC-3.10.4.1.25-03",
)
def test_slots_of_queue_info_3() -> None:
    for row in (
        "AC-3.10.4.1.19-02",
        "AC-3.10.4.1.20-02",
        "AC-3.10.4.1.21-02",
        "AC-3.10.4.1.23-03",
        "AC-3.10.4.1.25-03",
    ):
        holds(row)


@pytest.mark.spec(
    "AC-3.10.4.1.26-12",
    "AC-3.10.4.1.27-08",
    "AC-3.10.4.1.28-07",
    "AC-3.10.4.1.29-07",
    "AC-3.10.4.1.30-07",
)
def test_slots_of_queue_info_4() -> None:
    for row in (
        "AC-3.10.4.1.26-12",
        "AC-3.10.4.1.27-08",
        "AC-3.10.4.1.28-07",
        "AC-3.10.4.1.29-07",
        "AC-3.10.4.1.30-07",
    ):
        holds(row)


@pytest.mark.spec(
    "AC-3.10.4.1.31-05",
    "AC-3.10.4.1.32-02",
    "AC-3.10.4.1.33-02",
    "AC-3.10.4.1.35-03",
    "AC-3.10.4.1.36-02",
)
def test_slots_of_queue_info_5() -> None:
    for row in (
        "AC-3.10.4.1.31-05",
        "AC-3.10.4.1.32-02",
        "AC-3.10.4.1.33-02",
        "AC-3.10.4.1.35-03",
        "AC-3.10.4.1.36-02",
    ):
        holds(row)


@pytest.mark.spec("AC-3.10.4.1.37-02", "AC-3.10.4.1.39-04")
def test_slots_of_queue_info_6() -> None:
    for row in ("AC-3.10.4.1.37-02", "AC-3.10.4.1.39-04"):
        holds(row)


@pytest.mark.spec(
    "AC-3.11.4.1.1-03",
    "AC-3.11.4.1.2-02",
    "AC-3.11.4.1.3-03",
    "AC-3.11.4.1.4-02",
    "AC-3.11.4.1.5-03",
)
def test_slots_of_queue_1() -> None:
    for row in (
        "AC-3.11.4.1.1-03",
        "AC-3.11.4.1.2-02",
        "AC-3.11.4.1.3-03",
        "AC-3.11.4.1.4-02",
        "AC-3.11.4.1.5-03",
    ):
        holds(row)


@pytest.mark.spec(
    "AC-3.11.4.1.6-02",
    "AC-3.11.4.1.7-11",
    "AC-3.11.4.1.8-07",
    "AC-3.11.4.1.9-13",
    "AC-3.11.4.1.10-02",
)
def test_slots_of_queue_2() -> None:
    for row in (
        "AC-3.11.4.1.6-02",
        "AC-3.11.4.1.7-11",
        "AC-3.11.4.1.8-07",
        "AC-3.11.4.1.9-13",
        "AC-3.11.4.1.10-02",
    ):
        holds(row)


@pytest.mark.spec(
    "AC-3.11.4.1.11-12",
    "AC-3.11.4.1.12-08",
    "AC-3.11.4.1.13-08",
    "AC-3.11.4.1.14-10",
    "AC-3.11.4.1.15-07",
)
def test_slots_of_queue_3() -> None:
    for row in (
        "AC-3.11.4.1.11-12",
        "AC-3.11.4.1.12-08",
        "AC-3.11.4.1.13-08",
        "AC-3.11.4.1.14-10",
        "AC-3.11.4.1.15-07",
    ):
        holds(row)


@pytest.mark.spec(
    "AC-3.11.4.1.16-12",
    "AC-3.11.4.1.17-08",
    "AC-3.11.4.1.18-08",
    "AC-3.11.4.1.19-02",
    "AC-3.11.4.1.20-03",
)
def test_slots_of_queue_4() -> None:
    for row in (
        "AC-3.11.4.1.16-12",
        "AC-3.11.4.1.17-08",
        "AC-3.11.4.1.18-08",
        "AC-3.11.4.1.19-02",
        "AC-3.11.4.1.20-03",
    ):
        holds(row)


@pytest.mark.spec(
    "AC-3.11.4.1.21-11",
    "AC-3.11.4.1.22-11",
    "AC-3.11.4.1.23-10",
    "AC-3.11.4.1.24-10",
    "AC-3.11.4.1.25-10",
)
def test_slots_of_queue_5() -> None:
    for row in (
        "AC-3.11.4.1.21-11",
        "AC-3.11.4.1.22-11",
        "AC-3.11.4.1.23-10",
        "AC-3.11.4.1.24-10",
        "AC-3.11.4.1.25-10",
    ):
        holds(row)


@pytest.mark.spec(
    "AC-3.11.4.1.26-08",
    "AC-3.11.4.1.27-07",
    "AC-3.11.4.1.28-07",
    "AC-3.11.4.1.29-06",
    "AC-3.11.4.1.30-06",
)
def test_slots_of_queue_6() -> None:
    for row in (
        "AC-3.11.4.1.26-08",
        "AC-3.11.4.1.27-07",
        "AC-3.11.4.1.28-07",
        "AC-3.11.4.1.29-06",
        "AC-3.11.4.1.30-06",
    ):
        holds(row)


@pytest.mark.spec("AC-3.11.4.1.31-04", "AC-3.11.4.1.32-02", "AC-3.11.4.1.33-11")
def test_slots_of_queue_7() -> None:
    for row in ("AC-3.11.4.1.31-04", "AC-3.11.4.1.32-02", "AC-3.11.4.1.33-11"):
        holds(row)


@pytest.mark.spec(
    "AC-3.12.4.1.1-04",
    "AC-3.12.4.1.2-03",
    "AC-3.12.4.1.3-03",
    "AC-3.12.4.1.4-03",
    "AC-3.12.4.1.6-02",
)
def test_slots_of_destination_1() -> None:
    for row in (
        "AC-3.12.4.1.1-04",
        "AC-3.12.4.1.2-03",
        "AC-3.12.4.1.3-03",
        "AC-3.12.4.1.4-03",
        "AC-3.12.4.1.6-02",
    ):
        holds(row)


@pytest.mark.spec("AC-3.12.4.1.8-02", "AC-3.12.4.1.10-02", "AC-3.12.4.1.12-02", "AC-3.12.4.1.14-02")
def test_slots_of_destination_2() -> None:
    for row in ("AC-3.12.4.1.8-02", "AC-3.12.4.1.10-02", "AC-3.12.4.1.12-02", "AC-3.12.4.1.14-02"):
        holds(row)


@pytest.mark.spec("AC-3.12.4.2.1-02")
def test_slots_of_private_destination_1() -> None:
    holds("AC-3.12.4.2.1-02")


@pytest.mark.spec("AC-3.13.4.1.1-07", "AC-3.13.4.1.2-02", "AC-3.13.4.1.3-11")
def test_slots_of_query_1() -> None:
    for row in ("AC-3.13.4.1.1-07", "AC-3.13.4.1.2-02", "AC-3.13.4.1.3-11"):
        holds(row)


@pytest.mark.spec("AC-3.14.4.1.1-03", "AC-3.14.4.1.2-06", "AC-3.14.4.1.3-02")
def test_slots_of_queue_infos_1() -> None:
    for row in ("AC-3.14.4.1.1-03", "AC-3.14.4.1.2-06", "AC-3.14.4.1.3-02"):
        holds(row)


@pytest.mark.spec("AC-3.15.4.1.1-03", "AC-3.15.4.1.2-02", "AC-3.15.4.1.3-03")
def test_slots_of_collection_1() -> None:
    for row in ("AC-3.15.4.1.1-03", "AC-3.15.4.1.2-02", "AC-3.15.4.1.3-03"):
        holds(row)


@pytest.mark.spec("AC-3.16.4.1.1-02")
def test_slots_of_event_1() -> None:
    holds("AC-3.16.4.1.1-02")


@pytest.mark.spec("AC-3.16.4.3.1-02", "AC-3.16.4.3.2-02", "AC-3.16.4.3.3-02")
def test_slots_of_private_event_1() -> None:
    for row in ("AC-3.16.4.3.1-02", "AC-3.16.4.3.2-02", "AC-3.16.4.3.3-02"):
        holds(row)


@pytest.mark.spec("AC-3.16.4.4.1-03", "AC-3.16.4.4.2-03")
def test_slots_of_d_m_s_m_q_event_events_1() -> None:
    for row in ("AC-3.16.4.4.1-03", "AC-3.16.4.4.2-03"):
        holds(row)


@pytest.mark.spec(
    "AC-3.16.4.5.1-02",
    "AC-3.16.4.5.2-02",
    "AC-3.16.4.5.3-04",
    "AC-3.16.4.5.4-02",
    "AC-3.16.4.5.5-02",
)
def test_slots_of_connection_point_1() -> None:
    for row in (
        "AC-3.16.4.5.1-02",
        "AC-3.16.4.5.2-02",
        "AC-3.16.4.5.3-04",
        "AC-3.16.4.5.4-02",
        "AC-3.16.4.5.5-02",
    ):
        holds(row)


@pytest.mark.spec("AC-3.16.4.6.1-02", "AC-3.16.4.6.2-02")
def test_slots_of_connection_point_container_1() -> None:
    for row in ("AC-3.16.4.6.1-02", "AC-3.16.4.6.2-02"):
        holds(row)


@pytest.mark.spec(
    "AC-3.17.4.1.1-02",
    "AC-3.17.4.1.2-02",
    "AC-3.17.4.1.4-02",
    "AC-3.17.4.1.6-03",
    "AC-3.17.4.1.7-02",
)
def test_slots_of_message_1() -> None:
    for row in (
        "AC-3.17.4.1.1-02",
        "AC-3.17.4.1.2-02",
        "AC-3.17.4.1.4-02",
        "AC-3.17.4.1.6-03",
        "AC-3.17.4.1.7-02",
    ):
        holds(row)


@pytest.mark.spec(
    "AC-3.17.4.1.9-02",
    "AC-3.17.4.1.11-02",
    "AC-3.17.4.1.13-02",
    "AC-3.17.4.1.15-03",
    "AC-3.17.4.1.17-02",
)
def test_slots_of_message_2() -> None:
    for row in (
        "AC-3.17.4.1.9-02",
        "AC-3.17.4.1.11-02",
        "AC-3.17.4.1.13-02",
        "AC-3.17.4.1.15-03",
        "AC-3.17.4.1.17-02",
    ):
        holds(row)


@pytest.mark.spec(
    "AC-3.17.4.1.19-03",
    "AC-3.17.4.1.20-02",
    "AC-3.17.4.1.21-02",
    "AC-3.17.4.1.23-02",
    "AC-3.17.4.1.25-03",
)
def test_slots_of_message_3() -> None:
    for row in (
        "AC-3.17.4.1.19-03",
        "AC-3.17.4.1.20-02",
        "AC-3.17.4.1.21-02",
        "AC-3.17.4.1.23-02",
        "AC-3.17.4.1.25-03",
    ):
        holds(row)


@pytest.mark.spec(
    "AC-3.17.4.1.26-02",
    "AC-3.17.4.1.28-02",
    "AC-3.17.4.1.30-03",
    "AC-3.17.4.1.32-02",
    "AC-3.17.4.1.34-02",
)
def test_slots_of_message_4() -> None:
    for row in (
        "AC-3.17.4.1.26-02",
        "AC-3.17.4.1.28-02",
        "AC-3.17.4.1.30-03",
        "AC-3.17.4.1.32-02",
        "AC-3.17.4.1.34-02",
    ):
        holds(row)


@pytest.mark.spec(
    "AC-3.17.4.1.36-03",
    "AC-3.17.4.1.38-03",
    "AC-3.17.4.1.40-02",
    "AC-3.17.4.1.41-02",
    "AC-3.17.4.1.42-03",
)
def test_slots_of_message_5() -> None:
    for row in (
        "AC-3.17.4.1.36-03",
        "AC-3.17.4.1.38-03",
        "AC-3.17.4.1.40-02",
        "AC-3.17.4.1.41-02",
        "AC-3.17.4.1.42-03",
    ):
        holds(row)


@pytest.mark.spec(
    "AC-3.17.4.1.43-02",
    "AC-3.17.4.1.45-02",
    "AC-3.17.4.1.46-02",
    "AC-3.17.4.1.48-28",
    "AC-3.17.4.1.49-06",
)
def test_slots_of_message_6() -> None:
    for row in (
        "AC-3.17.4.1.43-02",
        "AC-3.17.4.1.45-02",
        "AC-3.17.4.1.46-02",
        "AC-3.17.4.1.48-28",
        "AC-3.17.4.1.49-06",
    ):
        holds(row)


@pytest.mark.spec(
    "AC-3.17.4.1.50-03",
    "AC-3.17.4.1.51-02",
    "AC-3.17.4.1.53-03",
    "AC-3.17.4.1.55-02",
    "AC-3.17.4.1.56-02",
)
def test_slots_of_message_7() -> None:
    for row in (
        "AC-3.17.4.1.50-03",
        "AC-3.17.4.1.51-02",
        "AC-3.17.4.1.53-03",
        "AC-3.17.4.1.55-02",
        "AC-3.17.4.1.56-02",
    ):
        holds(row)


@pytest.mark.spec(
    "AC-3.17.4.1.58-02",
    "AC-3.17.4.1.60-02",
    "AC-3.17.4.1.62-03",
    "AC-3.17.4.1.65-03",
    "AC-3.17.4.1.67-02",
)
def test_slots_of_message_8() -> None:
    for row in (
        "AC-3.17.4.1.58-02",
        "AC-3.17.4.1.60-02",
        "AC-3.17.4.1.62-03",
        "AC-3.17.4.1.65-03",
        "AC-3.17.4.1.67-02",
    ):
        holds(row)


@pytest.mark.spec(
    "AC-3.17.4.1.68-03",
    "AC-3.17.4.1.69-02",
    "AC-3.17.4.1.70-02",
    "AC-3.17.4.1.71-02",
    "AC-3.17.4.1.73-02",
)
def test_slots_of_message_9() -> None:
    for row in (
        "AC-3.17.4.1.68-03",
        "AC-3.17.4.1.69-02",
        "AC-3.17.4.1.70-02",
        "AC-3.17.4.1.71-02",
        "AC-3.17.4.1.73-02",
    ):
        holds(row)


@pytest.mark.spec(
    "AC-3.17.4.1.75-02",
    "AC-3.17.4.1.76-02",
    "AC-3.17.4.1.78-02",
    "AC-3.17.4.1.80-03",
    "AC-3.17.4.1.82-02",
)
def test_slots_of_message_10() -> None:
    for row in (
        "AC-3.17.4.1.75-02",
        "AC-3.17.4.1.76-02",
        "AC-3.17.4.1.78-02",
        "AC-3.17.4.1.80-03",
        "AC-3.17.4.1.82-02",
    ):
        holds(row)


@pytest.mark.spec(
    "AC-3.17.4.1.83-03",
    "AC-3.17.4.1.84-02",
    "AC-3.17.4.1.85-03",
    "AC-3.17.4.1.86-02",
    "AC-3.17.4.1.87-06",
)
def test_slots_of_message_11() -> None:
    for row in (
        "AC-3.17.4.1.83-03",
        "AC-3.17.4.1.84-02",
        "AC-3.17.4.1.85-03",
        "AC-3.17.4.1.86-02",
        "AC-3.17.4.1.87-06",
    ):
        holds(row)


@pytest.mark.spec(
    "AC-3.17.4.1.88-02", "AC-3.17.4.1.89-03", "AC-3.17.4.1.90-02", "AC-3.17.4.1.91-02"
)
def test_slots_of_message_12() -> None:
    for row in ("AC-3.17.4.1.88-02", "AC-3.17.4.1.89-03", "AC-3.17.4.1.90-02", "AC-3.17.4.1.91-02"):
        holds(row)


@pytest.mark.spec("AC-6-05", "AC-6-06", "AC-6-07", "AC-6-08")
def test_slots_of_enum_connection_points_1() -> None:
    for row in ("AC-6-05", "AC-6-06", "AC-6-07", "AC-6-08"):
        holds(row)
