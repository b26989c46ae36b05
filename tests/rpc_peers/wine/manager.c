/* Cases of remote management: manager HOST. A message waits for a queue elsewhere. */

#include "client.h"
#include "qmmgmt.h"

#define NO_QUEUE 0xc00e0003
#define INVALID_PARAMETER 0xc00e0006
#define NO_PROPERTY 0xc00e0039
#define MACHINE_PROPERTIES 6
#define QUEUE_PROPERTIES 27

enum { OF_MACHINE_PRIVATE_QUEUES = 2, OF_MACHINE_CONNECTED = 4, OF_MACHINE_BYTES = 6 };
enum { OF_QUEUE_PATH = 1, OF_QUEUE_COUNT = 7, OF_QUEUE_STATE = 11 };
enum { OF_QUEUE_SENDERS = 24, OF_QUEUE_HISTORY = 25 };
enum { TEXT = 31, NUMBER = 19, LARGE_NUMBER = 20, TEXTS = 0x101f, VARIANTS = 0x100c };

static handle_t host;
static MGMT_OBJECT machine = {.type = MGMT_MACHINE};
static QM_VARIANT values[QUEUE_PROPERTIES];

static MGMT_OBJECT of_queue(QUEUE_FORMAT *name)
{
    MGMT_OBJECT object = {.type = MGMT_QUEUE, .what.pQueueFormat = name};
    return object;
}

/* Reads properties from `first` on into `values`. */
static DWORD read(const MGMT_OBJECT *object, ULONG first, DWORD count)
{
    ULONG numbers[QUEUE_PROPERTIES];
    DWORD at;

    memset(values, 0, sizeof values);
    for (at = 0; at < count; at++) {
        numbers[at] = first + at;
        values[at].vt = 1;
    }
    return STATUS_OF(R_QMMgmtGetInfo(host, object, count, numbers, values));
}

static DWORD act(const MGMT_OBJECT *object, const wchar_t *action)
{
    return STATUS_OF(R_QMMgmtAction(host, object, action));
}

static void check_text(const char *what, const QM_VARIANT *found, const wchar_t *wanted)
{
    check(what, found->vt, TEXT);
    if (found->vt == TEXT)
        check(what, wcscmp(found->value.pwszVal, wanted), 0);
}

static void check_connected(const wchar_t *wanted)
{
    check("read whether it is connected", read(&machine, OF_MACHINE_CONNECTED, 1), 0);
    check_text("whether it is connected", values, wanted);
}

static void of_the_machine(void)
{
    const QM_VARIANT *queues = &values[OF_MACHINE_PRIVATE_QUEUES - 1];

    check("read the machine", read(&machine, 1, MACHINE_PROPERTIES), 0);
    check("private queues", queues->vt, TEXTS);
    check("of which there is", queues->value.calpwstr.cElems, 1);
    check("this one",
        wcscmp(queues->value.calpwstr.pElems[0].pwszVal, L"QUORATE\\private$\\orders"), 0);
    check("bytes", values[OF_MACHINE_BYTES - 1].vt, LARGE_NUMBER);
    check("more than none", values[OF_MACHINE_BYTES - 1].value.hVal.QuadPart > 0, 1);
    check("no such property", read(&machine, MACHINE_PROPERTIES + 1, 1), NO_PROPERTY);
    check("disconnect", act(&machine, L"DISCONNECT"), 0);
    check_connected(L"DISCONNECTED");
    check("connect", act(&machine, L"Connect"), 0);
    check_connected(L"CONNECTED");
    check("tidy", act(&machine, L"TIDY"), 0);
    check("no such action", act(&machine, L"ERASE"), INVALID_PARAMETER);
}

static void of_queues(void)
{
    QUEUE_FORMAT orders = direct(L"OS:QUORATE\\private$\\orders");
    QUEUE_FORMAT away = direct(L"OS:elsewhere.example\\private$\\q");
    QUEUE_FORMAT none = direct(L"OS:QUORATE\\private$\\none");
    MGMT_OBJECT queue = of_queue(&orders);
    const QM_VARIANT *senders = &values[OF_QUEUE_SENDERS - 1];
    const QM_VARIANT *history = &values[OF_QUEUE_HISTORY - 1];

    check("read a queue", read(&queue, 1, QUEUE_PROPERTIES), 0);
    check_text("its path", &values[OF_QUEUE_PATH - 1], L"QUORATE\\private$\\orders");
    check("how many messages", values[OF_QUEUE_COUNT - 1].vt, NUMBER);
    check("there are", values[OF_QUEUE_COUNT - 1].value.ulVal, 2);
    check("who sends to it", senders->vt, VARIANTS);
    check("in columns", senders->value.capropvar.cElems, 6);
    check("of names", senders->value.capropvar.pElems[0].vt, TEXTS);
    queue = of_queue(&away);
    check("pause", act(&queue, L"PAUSE"), 0);
    check("read an outgoing queue", read(&queue, 1, QUEUE_PROPERTIES), 0);
    check_text("its state", &values[OF_QUEUE_STATE - 1], L"ONHOLD");
    check("its history", history->vt, VARIANTS);
    check("in columns", history->value.capropvar.cElems, 4);
    check("of addresses", history->value.capropvar.pElems[3].vt, VARIANTS);
    check("messages in it", values[OF_QUEUE_COUNT - 1].value.ulVal, 1);
    check("resume", act(&queue, L"RESUME"), 0);
    check("resend", act(&queue, L"EOD_RESEND"), 0);
    queue = of_queue(&none);
    check("no such queue", read(&queue, 1, 1), NO_QUEUE);
    queue = of_queue(NULL);
    check("no queue", read(&queue, 1, 1), INVALID_PARAMETER);
}

int __cdecl main(int count, char **arguments)
{
    MGMT_OBJECT session = {.type = MGMT_SESSION};

    host = connected(arguments[count - 1], qmmgmt_v1_0_c_ifspec);
    of_the_machine();
    of_queues();
    check("a session", read(&session, 1, 1), INVALID_PARAMETER);
    return outcome("manager");
}
