/* What the programs beside this share: binding handles, names, exceptions as statuses, checks. */

#ifndef CLIENT_H
#define CLIENT_H

#include <stdio.h>
#include <windows.h>
#include <rpc.h>
#include <wine/exception.h>

#include "queue_format.h"

/* Evaluates an expression; its value, or the code of the RPC exception that it raised. */
#define STATUS_OF(expression)                          \
    ({                                                 \
        DWORD status_;                                 \
        __TRY { status_ = (expression); }              \
        __EXCEPT_ALL { status_ = GetExceptionCode(); } \
        __ENDTRY                                       \
        status_;                                       \
    })

struct logon {
    const char *user, *password; /* an empty user: none */
    DWORD level, service;
};

/* A resolved handle of an interface at a host, by its mapper on port 135. */
DWORD bound(const char *host, RPC_IF_HANDLE spec, const struct logon *as, handle_t *handle);

/* A handle of alice's at packet privacy. Ends the program if there is none. */
handle_t connected(const char *host, RPC_IF_HANDLE spec);

/* A direct format name without "DIRECT=". */
QUEUE_FORMAT direct(const wchar_t *name);
QUEUE_FORMAT subqueue(const wchar_t *name);

/* Counts and tells what is not as it should be. */
void check(const char *what, DWORD found, DWORD wanted);

/* How many checks failed, as a program's exit status. */
int outcome(const char *program);

#endif
