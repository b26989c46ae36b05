"""A node signs as soon as it has the sealing key, and says so while it has none."""

from pathlib import Path

from prometheus_client import CollectorRegistry

from qm.node.config.schema import StorageSection
from qm.node.membership.birth import SEALING_KEY_FILE
from qm.node.upkeep.export_signer import ExportSigner
from qm.observe.metrics import Metrics
from qm.store.signing import Signer


def test_a_node_signs_once_it_has_the_sealing_key(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    signer = ExportSigner(StorageSection(), tmp_path, Metrics(registry), lambda: 0.0)
    assert signer() is signer() is None
    assert registry.get_sample_value("quorate_exports_unsigned_total") == 2
    (tmp_path / SEALING_KEY_FILE).write_text("00" * 32)
    found = signer()
    assert found is not None
    assert found.public == Signer(bytes(32)).public
    (tmp_path / SEALING_KEY_FILE).unlink()
    assert signer() is found
