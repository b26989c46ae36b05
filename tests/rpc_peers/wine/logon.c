/* Whether an account may read: logon HOST USER PASSWORD LEVEL SERVICE. Prints the status.

   A program of its own, since Wine gives an idle connection of another account to a binding. */

#include "client.h"
#include "remote_read.h"

int __cdecl main(int count, char **arguments)
{
    struct logon as = {arguments[2], arguments[3], atoi(arguments[4]), atoi(arguments[5])};
    QUEUE_FORMAT orders = direct(L"OS:QUORATE\\private$\\orders");
    GUID client = {0};
    handle_t host;
    void *queue;
    DWORD status = bound(arguments[1], RemoteRead_v1_0_c_ifspec, &as, &host);

    if (!status)
        status = STATUS_OF((R_OpenQueue(
            host, &orders, 1, 0, &client, 1, 6, 1, 7601, 0, &queue), 0));
    if (!status)
        status = STATUS_OF(R_CloseQueue(host, &queue));
    printf("status %lx\n", status);
    return 0;
}
