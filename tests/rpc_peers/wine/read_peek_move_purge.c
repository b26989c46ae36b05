/* A queue is peeked at, received from, moved from and purged: read_peek_move_purge HOST */

#include "client.h"
#include "remote_read.h"

#define RECEIVE 0
#define PEEK 0x80000000
#define ALL 0xffffffff
#define KEY_OF_PRIORITY_3 (4ULL << 56)

int __cdecl main(int count, char **arguments)
{
    handle_t host = connected(arguments[count - 1], RemoteRead_v1_0_c_ifspec);
    QUEUE_FORMAT orders = direct(L"OS:QUORATE\\private$\\orders");
    QUEUE_FORMAT later = subqueue(L"OS:QUORATE\\private$\\orders;later");
    GUID client = {0};
    XACTUOW none = {{0}};
    void *queue, *target;
    DWORD at, sections;
    ULONGLONG sequence, move;
    SectionBuffer *packet = NULL;

    R_OpenQueue(host, &orders, 1, 0, &client, 1, 6, 1, 7601, 0, &queue);
    R_StartReceive(host, queue, 0, 0, PEEK, 0, 1, ALL, ALL, &at, &sequence, &sections, &packet);
    printf("peeked at %lu bytes\n", packet->SectionSize);
    R_StartReceive(host, queue, 0, 0, RECEIVE, 0, 2, ALL, ALL, &at, &sequence, &sections, &packet);
    check("accept", R_EndReceive(host, queue, 2, 2), 0);
    printf("received %lu bytes\n", packet->SectionSize);
    R_StartReceive(host, queue, 0, 0, PEEK, 0, 3, ALL, ALL, &at, &sequence, &sections, &packet);
    R_OpenQueueForMove(host, &later, 4, 0, &client, 1, 6, 1, 7601, 0, &move, &target);
    check("move", R_MoveMessage(host, queue, move, KEY_OF_PRIORITY_3 + sequence, &none), 0);
    check("purge", R_PurgeQueue(host, queue), 0);
    check("close", R_CloseQueue(host, &target) | R_CloseQueue(host, &queue), 0);
    return outcome("read_peek_move_purge");
}
