/* Preloaded: makes writes and syncs fail in files below chosen folders, for what opens its files
   itself (RocksDB). Slots are set through ctypes; the path of a descriptor is asked of /proc. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define SLOTS 8
#define PATH_BYTES 512

char fault_folder[SLOTS][PATH_BYTES];
char fault_suffix[SLOTS][64];
int fault_write[SLOTS];
int fault_sync[SLOTS];
int fault_once[SLOTS];
long fault_hits[SLOTS];

static int is_armed(const int *errors) {
    for (int slot = 0; slot < SLOTS; slot++)
        if (errors[slot])
            return 1;
    return 0;
}

/* Return the error for a descriptor, 0 for none. */
static int failing(int fd, int *errors) {
    char link[64], path[4096];
    int saved = errno;
    ssize_t length;
    if (!is_armed(errors))
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof path - 1);
    errno = saved;
    if (length < 0)
        return 0;
    path[length] = 0;
    for (int slot = 0; slot < SLOTS; slot++) {
        int error = errors[slot];
        if (!error || !fault_folder[slot][0] || !strstr(path, fault_folder[slot]))
            continue;
        if (fault_suffix[slot][0] && !strstr(path, fault_suffix[slot]))
            continue;
        if (strstr(path, "/LOG"))
            continue;
        __sync_fetch_and_add(&fault_hits[slot], 1);
        if (fault_once[slot])
            errors[slot] = 0;
        return error;
    }
    return 0;
}

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) \
        real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

#define FAIL_IF(errors) \
    do { \
        int error = failing(fd, errors); \
        if (error) { \
            errno = error; \
            return -1; \
        } \
    } while (0)

ssize_t write(int fd, const void *data, size_t length) {
    REAL(write);
    FAIL_IF(fault_write);
    return real(fd, data, length);
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t offset) {
    REAL(pwrite);
    FAIL_IF(fault_write);
    return real(fd, data, length, offset);
}

ssize_t pwrite64(int fd, const void *data, size_t length, off64_t offset) {
    REAL(pwrite64);
    FAIL_IF(fault_write);
    return real(fd, data, length, offset);
}

int fsync(int fd) {
    REAL(fsync);
    FAIL_IF(fault_sync);
    return real(fd);
}

int fdatasync(int fd) {
    REAL(fdatasync);
    FAIL_IF(fault_sync);
    return real(fd);
}
