#include "client.h"

static int checks, failures;

void *__RPC_USER MIDL_user_allocate(SIZE_T size)
{
    return malloc(size);
}

void __RPC_USER MIDL_user_free(void *memory)
{
    free(memory);
}

/* Never freed: a binding refers to it, and equal addresses are one logon. */
static SEC_WINNT_AUTH_IDENTITY_A *identity(const struct logon *as)
{
    SEC_WINNT_AUTH_IDENTITY_A *made = calloc(1, sizeof *made);

    made->User = (unsigned char *)as->user;
    made->UserLength = strlen(as->user);
    made->Domain = (unsigned char *)"";
    made->Password = (unsigned char *)as->password;
    made->PasswordLength = strlen(as->password);
    made->Flags = SEC_WINNT_AUTH_IDENTITY_ANSI;
    return made;
}

DWORD bound(const char *host, RPC_IF_HANDLE spec, const struct logon *as, handle_t *handle)
{
    unsigned char *text;
    DWORD status = RpcStringBindingComposeA(
        NULL, (unsigned char *)"ncacn_ip_tcp", (unsigned char *)host, NULL, NULL, &text);

    if (!status)
        status = RpcBindingFromStringBindingA(text, handle);
    if (!status)
        status = RpcEpResolveBinding(*handle, spec);
    if (!status && *as->user)
        status = RpcBindingSetAuthInfoExA(
            *handle, NULL, as->level, as->service, identity(as), RPC_C_AUTHZ_NONE, NULL);
    return status;
}

handle_t connected(const char *host, RPC_IF_HANDLE spec)
{
    struct logon alice = {"alice", "pw", RPC_C_AUTHN_LEVEL_PKT_PRIVACY, RPC_C_AUTHN_WINNT};
    handle_t handle;
    DWORD status = bound(host, spec, &alice, &handle);
    if (status) {
        printf("no binding to %s: %lu\n", host, status);
        exit(2);
    }
    return handle;
}

QUEUE_FORMAT direct(const wchar_t *name)
{
    QUEUE_FORMAT format = {.m_qft = 3, .name.m_pDirectID = (wchar_t *)name};
    return format;
}

QUEUE_FORMAT subqueue(const wchar_t *name)
{
    QUEUE_FORMAT format = {
        .m_qft = 8, .m_SuffixAndFlags = 5, .name.m_pDirectSubqueueID = (wchar_t *)name};
    return format;
}

void check(const char *what, DWORD found, DWORD wanted)
{
    checks++;
    if (found != wanted) {
        failures++;
        printf("%s: %lx, not %lx\n", what, found, wanted);
        fflush(stdout);
    }
}

int outcome(const char *program)
{
    printf("wine %s: %d of %d as they should be\n", program, checks - failures, checks);
    fflush(stdout);
    return failures != 0;
}
