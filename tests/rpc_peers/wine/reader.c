/* Cases of remote read: reader HOST. "send ..." asks whoever runs it for messages. */

#include "client.h"
#include "remote_read.h"

#define RECEIVE 0
#define PEEK 0x80000000
#define PEEK_NEXT 0x80000001
#define LOOKUP_PEEK_NEXT 0x40000011
#define LOOKUP_RECEIVE 0x40000020
#define ACK 2
#define NACK 1
#define ALL 0xffffffff
#define FOREVER 0xffffffff
#define SOON_MS 30000
#define KEY_OF_PRIORITY_3 (4ULL << 56)
#define MEANWHILE_MS 2000 /* enough for a call of another thread to arrive */
#define PAUSE_MS 20

#define INVALID_PARAMETER 0xc00e0006
#define INVALID_HANDLE 0xc00e0007
#define CANCELLED 0xc00e0008
#define NO_QUEUE 0xc00e0003
#define TIMED_OUT 0xc00e001b
#define NO_COORDINATOR 0xc00e004c
#define NOT_IN_TRANSACTION 0xc00e0050
#define UNKNOWN_TRANSACTION 0xc00e0051
#define NOT_FOUND 0xc00e0088
#define NOT_WAITING 0xc0000225
#define NO_CURSOR 0xc0000008

static handle_t host;
static GUID client;
static XACTUOW none;
static DWORD requests;

struct found {
    DWORD status, request, at, count;
    ULONGLONG sequence;
    SectionBuffer *sections;
};

static DWORD open_at(handle_t at, QUEUE_FORMAT name, DWORD access, void **queue)
{
    *queue = NULL;
    return STATUS_OF((R_OpenQueue(at, &name, access, 0, &client, 1, 6, 1, 7601, 0, queue), 0));
}

static void *opened(const wchar_t *name)
{
    void *queue;
    check("open", open_at(host, direct(name), 1, &queue), 0);
    return queue;
}

static void *orders(void)
{
    return opened(L"OS:QUORATE\\private$\\orders");
}

static void read_into(
    struct found *found, void *queue, DWORD action, DWORD wait_ms, ULONGLONG key, DWORD cursor,
    DWORD body_max)
{
    found->sections = NULL;
    found->status = STATUS_OF(R_StartReceive(
        host, queue, key, cursor, action, wait_ms, found->request, body_max, ALL, &found->at,
        &found->sequence, &found->count, &found->sections));
}

static struct found start(void *queue, DWORD action, DWORD wait_ms)
{
    struct found found = {.request = ++requests};
    read_into(&found, queue, action, wait_ms, 0, 0, ALL);
    return found;
}

static struct found start_at(void *queue, DWORD action, ULONGLONG key, DWORD cursor)
{
    struct found found = {.request = ++requests};
    read_into(&found, queue, action, 0, key, cursor, ALL);
    return found;
}

/* Tries until there is a message, which may be on its way. */
static struct found await_at(void *queue, DWORD action, ULONGLONG key, DWORD cursor)
{
    struct found found = start_at(queue, action, key, cursor);
    DWORD tries = SOON_MS / PAUSE_MS;

    while ((found.status == TIMED_OUT || found.status == NOT_FOUND) && tries--) {
        Sleep(PAUSE_MS);
        found = start_at(queue, action, key, cursor);
    }
    return found;
}

static void check_body(const char *what, const struct found *found, const char *body)
{
    SectionBuffer *packet = found->sections;
    DWORD size = strlen(body), at;
    int is_there = 0;

    check(what, found->status, 0);
    if (!packet)
        return;
    check("one section", found->count, 1);
    check("of the whole packet", packet->SectionBufferType, stFullPacket);
    check("as large as said", packet->SectionSizeAlloc, packet->SectionSize);
    for (at = 0; at + size <= packet->SectionSize; at++)
        is_there |= !memcmp(packet->pSectionBuffer + at, body, size);
    check(body, is_there, 1);
}

static DWORD end(void *queue, const struct found *found, DWORD ack)
{
    return STATUS_OF(R_EndReceive(host, queue, ack, found->request));
}

static void close_queue(void *queue)
{
    check("close", STATUS_OF(R_CloseQueue(host, &queue)), 0);
    check("a closed handle", queue != NULL, 0);
}

static void ask_for(const char *bodies)
{
    printf("send %s\n", bodies);
    fflush(stdout);
}

static void two_phases(void)
{
    void *queue = orders();
    struct found found, again;

    ask_for("one two");
    found = start(queue, RECEIVE, SOON_MS);
    check_body("receive", &found, "one");
    check("end an unknown one", STATUS_OF(R_EndReceive(host, queue, ACK, 9999)), INVALID_PARAMETER);
    check("return", end(queue, &found, NACK), 0);
    again = start(queue, RECEIVE, SOON_MS);
    check_body("receive what went back", &again, "one");
    check("at its place", again.sequence, found.sequence);
    check("accept", end(queue, &again, ACK), 0);
    check("accept twice", end(queue, &again, ACK), INVALID_HANDLE);
    found = start(queue, RECEIVE, SOON_MS);
    check_body("receive the next", &found, "two");
    close_queue(queue);
    queue = orders();
    again = start(queue, RECEIVE, 0);
    check_body("receive what a close returned", &again, "two");
    check("accept", end(queue, &again, ACK), 0);
    check("nothing is left", start(queue, RECEIVE, 200).status, TIMED_OUT);
    close_queue(queue);
}

static void cursors_and_lookups(void)
{
    void *queue = orders();
    DWORD cursor;
    struct found first, found;

    ask_for("alpha beta gamma");
    first = start(queue, PEEK, SOON_MS);
    check_body("peek", &first, "alpha");
    check("a cursor", STATUS_OF(R_CreateCursor(host, queue, &cursor)), 0);
    found = start_at(queue, PEEK, 0, cursor);
    check_body("at the cursor", &found, "alpha");
    found = await_at(queue, PEEK_NEXT, 0, cursor);
    check_body("behind it", &found, "beta");
    found = start_at(queue, RECEIVE, 0, cursor);
    check_body("received there", &found, "beta");
    check("accept", end(queue, &found, ACK), 0);
    check("close the cursor", STATUS_OF(R_CloseCursor(host, queue, cursor)), 0);
    check("a closed cursor", start_at(queue, PEEK, 0, cursor).status, NO_CURSOR);
    found = await_at(queue, LOOKUP_PEEK_NEXT, KEY_OF_PRIORITY_3 + first.sequence, 0);
    check_body("the next by its key", &found, "gamma");
    found = start_at(queue, LOOKUP_RECEIVE, KEY_OF_PRIORITY_3 + found.sequence, 0);
    check_body("received by its key", &found, "gamma");
    check("accept", end(queue, &found, ACK), 0);
    check("purge", STATUS_OF(R_PurgeQueue(host, queue)), 0);
    check("purged", start(queue, PEEK, 0).status, TIMED_OUT);
    close_queue(queue);
}

static void sections(void)
{
    enum { SIZE = 300000, TAKEN = 1000 };
    void *queue = orders();
    struct found found = {.request = ++requests};
    SectionBuffer *first, *second;

    ask_for("300000");
    read_into(&found, queue, PEEK, SOON_MS, 0, 0, TAKEN);
    check("peek at a part", found.status, 0);
    check("two sections", found.count, 2);
    first = found.sections, second = found.sections + 1;
    check("the first", first->SectionBufferType, stBinaryFirstSection);
    check("left out", first->SectionSizeAlloc - first->SectionSize, SIZE - TAKEN);
    check("the second", second->SectionBufferType, stBinarySecondSection);
    check("nothing left out", second->SectionSizeAlloc, second->SectionSize);
    found = start(queue, RECEIVE, 0);
    check("receive all", found.status, 0);
    check("one section", found.count, 1);
    check("of all bytes", found.sections->SectionSize > SIZE, 1);
    check("accept", end(queue, &found, ACK), 0);
    close_queue(queue);
}

struct waiting {
    void *queue;
    struct found found;
    HANDLE thread;
};

static DWORD WINAPI wait_for_one(void *argument)
{
    struct waiting *waiting = argument;
    read_into(&waiting->found, waiting->queue, RECEIVE, FOREVER, 0, 0, ALL);
    return 0;
}

static void begin(struct waiting *waiting, void *queue)
{
    waiting->queue = queue;
    waiting->found.request = ++requests;
    waiting->thread = CreateThread(NULL, 0, wait_for_one, waiting, 0, NULL);
}

static void join(struct waiting *waiting)
{
    check("ended", WaitForSingleObject(waiting->thread, SOON_MS), WAIT_OBJECT_0);
}

static DWORD cancelled(void *queue, DWORD request)
{
    DWORD status, tries = SOON_MS / PAUSE_MS;
    while ((status = STATUS_OF(R_CancelReceive(host, queue, request))) == NOT_WAITING && tries--)
        Sleep(PAUSE_MS);
    return status;
}

static void waits(void)
{
    void *queue = orders();
    struct waiting first, second;

    begin(&first, queue);
    begin(&second, queue);
    check("cancel", cancelled(queue, first.found.request), 0);
    join(&first);
    check("what was cancelled", first.found.status, CANCELLED);
    check("cancel it again",
        STATUS_OF(R_CancelReceive(host, queue, first.found.request)), NOT_WAITING);
    ask_for("late");
    join(&second);
    check_body("what waited", &second.found, "late");
    check("accept", end(queue, &second.found, ACK), 0);
    begin(&first, queue);
    check("peek meanwhile", start(queue, PEEK, MEANWHILE_MS).status, TIMED_OUT);
    close_queue(queue);
    join(&first);
    check("what a close ended", first.found.status, CANCELLED);
}

static void moves(void)
{
    QUEUE_FORMAT name = subqueue(L"OS:QUORATE\\private$\\orders;moved");
    void *queue = orders(), *target, *later;
    ULONGLONG move;
    struct found found;

    ask_for("moved");
    found = start(queue, PEEK, SOON_MS);
    check_body("peek", &found, "moved");
    check("open for moves",
        STATUS_OF((R_OpenQueueForMove(
            host, &name, 4, 0, &client, 1, 6, 1, 7601, 0, &move, &target), 0)), 0);
    check("move",
        STATUS_OF(R_MoveMessage(
            host, queue, move, KEY_OF_PRIORITY_3 + found.sequence, &none)), 0);
    check("gone from the queue", start(queue, PEEK, 0).status, TIMED_OUT);
    check("open the subqueue", open_at(host, name, 1, &later), 0);
    found = start(later, RECEIVE, 0);
    check_body("receive what was moved", &found, "moved");
    check("accept", end(later, &found, ACK), 0);
    close_queue(later);
    close_queue(target);
    check("a move to a closed one",
        STATUS_OF(R_MoveMessage(host, queue, move, 1, &none)), INVALID_HANDLE);
    close_queue(queue);
}

static void transactions(void)
{
    QUEUE_FORMAT name = direct(L"OS:QUORATE\\private$\\orders");
    XACTUOW other = {{1, 2, 3}};
    unsigned char token[100] = {0};
    void *queue = orders();
    struct found found = {.request = ++requests};

    check("enlist",
        STATUS_OF(R_QMEnlistRemoteTransaction(host, &other, sizeof token, token, &name)),
        NO_COORDINATOR);
    check("an unknown transaction",
        STATUS_OF(R_StartTransactionalReceive(
            host, queue, 0, 0, RECEIVE, 0, 1, ALL, ALL, &other, &found.at, &found.sequence,
            &found.count, &found.sections)), UNKNOWN_TRANSACTION);
    ask_for("plain");
    found.status = STATUS_OF(R_StartTransactionalReceive(
        host, queue, 0, 0, RECEIVE, SOON_MS, found.request, ALL, ALL, &none, &found.at,
        &found.sequence, &found.count, &found.sections));
    check_body("no transaction", &found, "plain");
    check("a class without a transaction",
        STATUS_OF(R_SetUserAcknowledgementClass(
            host, queue, KEY_OF_PRIORITY_3 + found.sequence, 0xc004)),
        NOT_IN_TRANSACTION);
    check("accept", STATUS_OF(R_EndTransactionalReceive(host, queue, ACK, found.request)), 0);
    close_queue(queue);
}

static void names(void)
{
    static wchar_t domain[] = L"example.test";
    GUID id = {1};
    QUEUE_FORMAT format = direct(L"OS:QUORATE\\private$\\none");
    void *queue;

    check("no such queue", open_at(host, format, 1, &queue), NO_QUEUE);
    check("no such access", open_at(host, format, 3, &queue), INVALID_PARAMETER);
    format = (QUEUE_FORMAT){.m_qft = 1, .name.m_gPublicID = id};
    check("no such public queue", open_at(host, format, 1, &queue), NO_QUEUE);
    format = (QUEUE_FORMAT){.m_qft = 2, .name.m_oPrivateID = {id, 7}};
    check("no such private queue", open_at(host, format, 1, &queue), NO_QUEUE);
    format = (QUEUE_FORMAT){.m_qft = 4, .m_SuffixAndFlags = 0x82, .name.m_gMachineID = id};
    check("dead letters elsewhere", open_at(host, format, 1, &queue), NO_QUEUE);
    format = (QUEUE_FORMAT){.m_qft = 5, .name.m_GConnectorID = id};
    check("a connector", open_at(host, format, 1, &queue), INVALID_PARAMETER);
    format = (QUEUE_FORMAT){.m_qft = 6, .name.m_DlID = {id, domain}};
    check("a distribution list", open_at(host, format, 1, &queue), INVALID_PARAMETER);
    format = (QUEUE_FORMAT){.m_qft = 7, .name.m_MulticastID = {1, 2}};
    check("a multicast address", open_at(host, format, 1, &queue), INVALID_PARAMETER);
    check("a port", R_GetServerPort(host) != 0, 1);
}

static void wrong_calls(void)
{
    static DWORD acks[] = {0, 3, 0x10002};
    void *queue = orders(), *stale = NULL;
    char bytes[20];
    int at;

    for (at = 0; at < 3; at++)
        check("no acknowledgement",
            STATUS_OF(R_EndReceive(host, queue, acks[at], 1)), RPC_X_BAD_STUB_DATA);
    NDRCContextMarshall(queue, bytes);
    close_queue(queue);
    NDRCContextUnmarshall(&stale, host, bytes, NDR_LOCAL_DATA_REPRESENTATION);
    check("a handle that was closed",
        STATUS_OF(R_PurgeQueue(host, stale)), RPC_X_SS_CONTEXT_MISMATCH);
}

int __cdecl main(int count, char **arguments)
{
    host = connected(arguments[count - 1], RemoteRead_v1_0_c_ifspec);
    two_phases();
    cursors_and_lookups();
    sections();
    waits();
    moves();
    transactions();
    names();
    wrong_calls();
    return outcome("reader");
}
