/* Preloaded: makes writes and syncs fail in files below chosen folders, for what opens its files
   itself (RocksDB). Slots are set by the process itself through ctypes, or by others through a file
   that FAULT_FILE names. The path of a descriptor is asked of /proc. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#define SLOTS 8

/* Errors are numbers of errno, 0 for none. */
struct fault {
    char folder[512];
    char suffix[64];
    int write;
    int sync;
    int once;
    int hits;
};

struct fault fault_slots[SLOTS];
static struct fault *faults = fault_slots;

__attribute__((constructor)) static void open_file(void) {
    const char *name = getenv("FAULT_FILE");
    int fd = name ? open(name, O_RDWR | O_CLOEXEC) : -1;
    void *found;
    if (fd < 0)
        return;
    found = mmap(NULL, sizeof fault_slots, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (found != MAP_FAILED)
        faults = found;
}

enum what { WRITE, SYNC };

static int *error_of(struct fault *fault, enum what what) {
    return what == WRITE ? &fault->write : &fault->sync;
}

static int is_armed(enum what what) {
    for (int slot = 0; slot < SLOTS; slot++)
        if (*error_of(&faults[slot], what))
            return 1;
    return 0;
}

/* Return the error for a descriptor, 0 for none. */
static int failing(int fd, enum what what) {
    char link[64], path[4096];
    int saved = errno;
    ssize_t length;
    if (!is_armed(what))
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof path - 1);
    errno = saved;
    if (length < 0)
        return 0;
    path[length] = 0;
    for (int slot = 0; slot < SLOTS; slot++) {
        struct fault *fault = &faults[slot];
        int error = *error_of(fault, what);
        if (!error || !fault->folder[0] || !strstr(path, fault->folder))
            continue;
        if (fault->suffix[0] && !strstr(path, fault->suffix))
            continue;
        if (strstr(path, "/LOG"))
            continue;
        __sync_fetch_and_add(&fault->hits, 1);
        if (fault->once)
            *error_of(fault, what) = 0;
        return error;
    }
    return 0;
}

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) \
        real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

#define FAIL_IF(what) \
    do { \
        int error = failing(fd, what); \
        if (error) { \
            errno = error; \
            return -1; \
        } \
    } while (0)

ssize_t write(int fd, const void *data, size_t length) {
    REAL(write);
    FAIL_IF(WRITE);
    return real(fd, data, length);
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t offset) {
    REAL(pwrite);
    FAIL_IF(WRITE);
    return real(fd, data, length, offset);
}

ssize_t pwrite64(int fd, const void *data, size_t length, off64_t offset) {
    REAL(pwrite64);
    FAIL_IF(WRITE);
    return real(fd, data, length, offset);
}

int fsync(int fd) {
    REAL(fsync);
    FAIL_IF(SYNC);
    return real(fd);
}

int fdatasync(int fd) {
    REAL(fdatasync);
    FAIL_IF(SYNC);
    return real(fd);
}
