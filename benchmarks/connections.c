/* Many connections with one request each, on one thread.
 *
 *   connections PORT CONNECTIONS FRAMES ERROR_AT WARM_UP REQUESTS
 *
 * FRAMES is a file of whole request frames (with their sizes), which the connections use in turn. Every answer must have two zero
 * bytes (the error code) at the position ERROR_AT of its payload. With REQUESTS > 0 every connection asks again as soon as it has its
 * answer, until WARM_UP + REQUESTS answers are here; prints one JSON object about the last REQUESTS. With REQUESTS = 0 every
 * connection asks once; prints an empty JSON object and keeps the connections until the end of its input.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { ANSWER = 512 }; /* no answer that is used here is longer */

typedef struct {
    int fd;
    const char *frame;
    uint32_t size, sent, got;
    double asked_at;
    char answer[ANSWER];
} connection_t;

static void die(const char *what) {
    fprintf(stderr, "connections: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void ask(connection_t *c) {
    c->got = 0;
    c->asked_at = now();
    /* One small frame after an answer always fits into the buffer of the socket. */
    if (send(c->fd, c->frame, c->size, 0) != (ssize_t)c->size)
        die("send");
}

/* Return 1 if the whole answer is here. */
static int take(connection_t *c, uint32_t error_at) {
    uint32_t length;
    ssize_t n = recv(c->fd, c->answer + c->got, ANSWER - c->got, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0)
        die(n ? "recv" : "the broker hung up");
    c->got += n;
    if (c->got < 4)
        return 0;
    memcpy(&length, c->answer, 4);
    length = ntohl(length);
    if (length > ANSWER - 4 || length < error_at + 2 || c->got > length + 4) {
        fprintf(stderr, "connections: an answer of %u bytes\n", length);
        exit(1);
    }
    if (c->got < length + 4)
        return 0;
    if (c->answer[4 + error_at] || c->answer[5 + error_at]) {
        fprintf(stderr, "connections: error code %d\n", c->answer[4 + error_at] << 8 | c->answer[5 + error_at]);
        exit(1);
    }
    return 1;
}

static int by_value(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static char *read_file(const char *path, long *size) {
    FILE *file = fopen(path, "rb");
    char *bytes;
    if (!file || fseek(file, 0, SEEK_END) || (*size = ftell(file)) <= 0)
        die(path);
    rewind(file);
    bytes = malloc(*size);
    if (!bytes || fread(bytes, 1, *size, file) != (size_t)*size)
        die(path);
    fclose(file);
    return bytes;
}

int main(int argc, char **argv) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct epoll_event events[256];
    long count, warm_up, requests, answers = 0, size = 0, at = 0;
    uint32_t error_at;
    connection_t *all;
    float *took;
    double begin = 0, end;
    char *frames;
    int epoll = epoll_create1(0), one = 1;

    if (argc != 7) {
        fprintf(stderr, "usage: connections PORT CONNECTIONS FRAMES ERROR_AT WARM_UP REQUESTS\n");
        return 2;
    }
    address.sin_port = htons(atoi(argv[1]));
    count = atol(argv[2]);
    frames = read_file(argv[3], &size);
    error_at = atol(argv[4]);
    warm_up = atol(argv[5]);
    requests = atol(argv[6]);
    all = calloc(count, sizeof *all);
    took = malloc((requests + 1) * sizeof *took);
    if (!all || !took)
        die("malloc");
    for (long i = 0; i < count; i++) {
        connection_t *c = all + i;
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
        uint32_t length;
        memcpy(&length, frames + at, 4);
        c->frame = frames + at;
        c->size = 4 + ntohl(length);
        at = at + c->size < size ? at + c->size : 0;
        c->fd = socket(AF_INET, SOCK_STREAM, 0);
        if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&address, sizeof address))
            die("connect");
        setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &event))
            die("epoll_ctl");
    }
    for (long i = 0; i < count; i++)
        ask(all + i);
    if (!requests)
        warm_up = count;
    while (answers < warm_up + requests) {
        int ready = epoll_wait(epoll, events, 256, 30000);
        if (ready <= 0)
            die("no answer for 30 s");
        for (int i = 0; i < ready && answers < warm_up + requests; i++) {
            connection_t *c = events[i].data.ptr;
            if (!take(c, error_at))
                continue;
            if (answers == warm_up)
                begin = now();
            if (answers >= warm_up)
                took[answers - warm_up] = now() - c->asked_at;
            answers++;
            if (requests)
                ask(c);
        }
    }
    if (!requests) {
        puts("{}");
        fflush(stdout);
        while (getchar() != EOF)
            ;
        return 0;
    }
    end = now();
    qsort(took, requests, sizeof *took, by_value);
    printf("{\"seconds\": %.6f, \"p50_ms\": %.4f, \"p99_ms\": %.4f}\n", end - begin,
           took[requests / 2] * 1e3, took[requests * 99 / 100] * 1e3);
    return 0;
}
