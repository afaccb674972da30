/* The floor of the comparison: the least that a broker can do for the load client.
 *
 *   floor FILE
 *
 * Serves one partition of any topic on a free port of the loopback interface, which it prints. A produced
 * batch gets its offset, is written to FILE with pwrite and answered; a fetch is answered with sendfile. There are
 * no checks, indexes on disk, replicas or other requests than the five below, in the one version of each that
 * librdkafka uses with a broker of that age. What it does not expect ends it with a message. Each
 * connection has a thread, which blocks.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PRODUCE = 0, FETCH = 1, LIST_OFFSETS = 2, METADATA = 3, API_VERSIONS = 18 };
enum { UNSUPPORTED_VERSION = 35, NODE_ID = 1, BUFFER = 8 << 20, FIRST_PIECE = 4096, ANSWER = 4096 };
/* Fields of a record batch. */
enum { BATCH_LENGTH = 8, LAST_OFFSET_DELTA = 23, BATCH_HEADER = 61 };

static const int16_t versions[][2] = {{PRODUCE, 3}, {FETCH, 4}, {LIST_OFFSETS, 1}, {METADATA, 1}, {API_VERSIONS, 0}};
static int port;

/* The partition: where each batch begins in the file. */
static struct {
    pthread_mutex_t lock;
    int file;
    off_t end;
    int64_t next_offset;
    struct batch {
        int64_t base_offset;
        off_t position;
    } *batches;
    size_t count, room;
} partition = {.lock = PTHREAD_MUTEX_INITIALIZER};

struct request {
    uint8_t *at, *end;
};

struct answer {
    uint8_t bytes[ANSWER];
    size_t size;
};

static void die(const char *what) {
    fprintf(stderr, "%s%s%s\n", what, errno ? ": " : "", errno ? strerror(errno) : "");
    exit(1);
}

static uint8_t *take(struct request *in, size_t size) {
    uint8_t *at = in->at;
    if ((size_t)(in->end - at) < size)
        die("a request is too short");
    in->at += size;
    return at;
}

/* Read a big-endian number of `size` bytes. */
static int64_t take_number(struct request *in, size_t size) {
    uint8_t *at = take(in, size);
    uint64_t value = at[0] & 0x80 ? UINT64_MAX : 0;
    for (size_t i = 0; i < size; i++)
        value = value << 8 | at[i];
    return (int64_t)value;
}

struct string {
    const uint8_t *at;
    int16_t size; /* -1: null */
};

static struct string take_string(struct request *in) {
    struct string text = {.size = (int16_t)take_number(in, 2)};
    text.at = take(in, text.size > 0 ? (size_t)text.size : 0);
    return text;
}

static void put(struct answer *out, const void *bytes, size_t size) {
    if (size > ANSWER - out->size)
        die("an answer is too long");
    memcpy(out->bytes + out->size, bytes, size);
    out->size += size;
}

static void put_number(struct answer *out, int64_t value, size_t size) {
    uint64_t bytes = htobe64((uint64_t)value);
    put(out, (uint8_t *)&bytes + 8 - size, size);
}

static void put_string(struct answer *out, struct string text) {
    put_number(out, text.size, 2);
    put(out, text.at, text.size > 0 ? (size_t)text.size : 0);
}

/* Send an answer, and after it `size` bytes of the file. */
static void reply(int socket, struct answer *out, off_t position, size_t size) {
    uint32_t length = htobe32((uint32_t)(out->size - 4 + size));
    memcpy(out->bytes, &length, 4);
    if (send(socket, out->bytes, out->size, MSG_NOSIGNAL | (size ? MSG_MORE : 0)) < 0)
        return; /* the client has gone: the next recv tells */
    while (size) {
        ssize_t sent = sendfile(socket, partition.file, &position, size);
        if (sent <= 0)
            return;
        size -= (size_t)sent;
    }
}

static void answer_versions(struct answer *out, int64_t version) {
    put_number(out, version ? UNSUPPORTED_VERSION : 0, 2);
    put_number(out, sizeof versions / sizeof *versions, 4);
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        put_number(out, versions[i][0], 2);
        put_number(out, versions[i][1], 2);
        put_number(out, versions[i][1], 2);
    }
}

static void answer_metadata(struct request *in, struct answer *out) {
    int64_t topics = take_number(in, 4);
    put_number(out, 1, 4);
    put_number(out, NODE_ID, 4);
    put_string(out, (struct string){(const uint8_t *)"127.0.0.1", 9});
    put_number(out, port, 4);
    put_number(out, -1, 2); /* no rack */
    put_number(out, NODE_ID, 4);
    put_number(out, topics > 0 ? topics : 0, 4);
    for (; topics > 0; topics--) {
        put_number(out, 0, 2);
        put_string(out, take_string(in));
        put(out, "", 1); /* not internal */
        put_number(out, 1, 4);
        put_number(out, 0, 2);
        put_number(out, 0, 4);
        put_number(out, NODE_ID, 4);
        for (int i = 0; i < 2; i++) { /* replicas, and those in sync */
            put_number(out, 1, 4);
            put_number(out, NODE_ID, 4);
        }
    }
}

/* Read a topic and its partition; a request has exactly one of each. */
static struct string take_topic(struct request *in) {
    struct string topic;
    if (take_number(in, 4) != 1)
        die("more than one topic");
    topic = take_string(in);
    if (take_number(in, 4) != 1 || take_number(in, 4) != 0)
        die("another partition than 0");
    return topic;
}

static void put_topic(struct answer *out, struct string topic) {
    put_number(out, 1, 4);
    put_string(out, topic);
    put_number(out, 1, 4);
    put_number(out, 0, 4);
    put_number(out, 0, 2); /* no error */
}

static int64_t append(uint8_t *batch, size_t size) {
    struct request length = {batch + BATCH_LENGTH, batch + size};
    struct request delta = {batch + LAST_OFFSET_DELTA, batch + size};
    int64_t offset;

    if (size < BATCH_HEADER || (size_t)take_number(&length, 4) + BATCH_LENGTH + 4 != size)
        die("not exactly one batch");
    pthread_mutex_lock(&partition.lock);
    if (partition.count == partition.room) {
        partition.room = 2 * partition.room + 1024;
        partition.batches = realloc(partition.batches, partition.room * sizeof *partition.batches);
        if (!partition.batches)
            die("index");
    }
    offset = partition.next_offset;
    memcpy(batch, &(uint64_t){htobe64((uint64_t)offset)}, 8);
    if (pwrite(partition.file, batch, size, partition.end) != (ssize_t)size)
        die("append");
    partition.batches[partition.count++] = (struct batch){offset, partition.end};
    partition.end += (off_t)size;
    partition.next_offset += take_number(&delta, 4) + 1;
    pthread_mutex_unlock(&partition.lock);
    return offset;
}

static void answer_produce(struct request *in, struct answer *out) {
    struct string topic;
    size_t size;

    take_string(in); /* transactional id */
    take(in, 2 + 4); /* acks, timeout */
    topic = take_topic(in);
    size = (size_t)take_number(in, 4);
    put_topic(out, topic);
    put_number(out, append(take(in, size), size), 8);
    put_number(out, -1, 8); /* append time */
    put_number(out, 0, 4);  /* throttle time */
}

static void answer_list_offsets(struct request *in, struct answer *out) {
    struct string topic;
    int64_t timestamp;

    take(in, 4); /* replica */
    topic = take_topic(in);
    timestamp = take_number(in, 8);
    put_topic(out, topic);
    put_number(out, -1, 8);
    pthread_mutex_lock(&partition.lock);
    put_number(out, timestamp == -2 ? 0 : partition.next_offset, 8);
    pthread_mutex_unlock(&partition.lock);
}

/* Return the bytes from the batch with `offset` on, and where it begins. */
static size_t bytes_from(int64_t offset, off_t *position) {
    size_t low = 0, high, size = 0;
    pthread_mutex_lock(&partition.lock);
    high = partition.count;
    if (offset < partition.next_offset) {
        while (high - low > 1) {
            size_t middle = (low + high) / 2;
            if (partition.batches[middle].base_offset <= offset)
                low = middle;
            else
                high = middle;
        }
        *position = partition.batches[low].position;
        size = (size_t)(partition.end - *position);
    }
    pthread_mutex_unlock(&partition.lock);
    return size;
}

static void answer_fetch(struct request *in, struct answer *out, int socket) {
    struct string topic;
    int64_t wait_ms, offset, limit;
    off_t position = 0;
    size_t size;

    take(in, 4); /* replica */
    wait_ms = take_number(in, 4);
    take(in, 4 + 4 + 1); /* least and most bytes of the answer, isolation level */
    topic = take_topic(in);
    offset = take_number(in, 8);
    limit = take_number(in, 4);
    while (!(size = bytes_from(offset, &position)) && wait_ms-- > 0)
        usleep(1000);
    if (size > (size_t)limit)
        size = (size_t)limit; /* the last batch may be cut, as Kafka does */
    put_number(out, 0, 4); /* throttle time */
    put_topic(out, topic);
    pthread_mutex_lock(&partition.lock);
    put_number(out, partition.next_offset, 8); /* high watermark */
    put_number(out, partition.next_offset, 8); /* last stable offset */
    pthread_mutex_unlock(&partition.lock);
    put_number(out, 0, 4); /* aborted transactions */
    put_number(out, (int64_t)size, 4);
    reply(socket, out, position, size);
}

static void handle(struct request *in, int socket) {
    struct answer out = {.size = 4};
    int64_t key = take_number(in, 2), version = take_number(in, 2);

    put_number(&out, take_number(in, 4), 4); /* correlation id */
    take_string(in);         /* client id */
    if (key == API_VERSIONS)
        answer_versions(&out, version);
    else if (key == METADATA)
        answer_metadata(in, &out);
    else if (key == PRODUCE)
        answer_produce(in, &out);
    else if (key == LIST_OFFSETS)
        answer_list_offsets(in, &out);
    else if (key == FETCH) {
        answer_fetch(in, &out, socket);
        return;
    } else
        die("a request of an unexpected kind");
    reply(socket, &out, 0, 0);
}

static void *serve(void *argument) {
    int socket = (int)(intptr_t)argument;
    uint8_t *buffer = malloc(BUFFER);
    size_t filled = 0, wanted = FIRST_PIECE;
    ssize_t got;

    if (!buffer)
        die("buffer");
    /* Of a request that is longer than the first piece, no byte of the next one is read: nothing has to move. */
    while ((got = recv(socket, buffer + filled, wanted - filled, 0)) > 0) {
        size_t done = 0;
        filled += (size_t)got;
        wanted = FIRST_PIECE;
        while (filled - done >= 4) {
            struct request in = {buffer + done, buffer + filled};
            size_t size = (size_t)take_number(&in, 4);
            if (size > BUFFER - 4)
                die("a request is too long");
            if (filled - done < 4 + size) {
                wanted = 4 + size > FIRST_PIECE ? 4 + size : FIRST_PIECE;
                break;
            }
            in.end = in.at + size;
            handle(&in, socket);
            done += 4 + size;
        }
        memmove(buffer, buffer + done, filled - done);
        filled -= done;
    }
    close(socket);
    free(buffer);
    return NULL;
}

int main(int argc, char **argv) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);

    if (argc != 2) {
        fprintf(stderr, "usage: floor FILE\n");
        return 2;
    }
    partition.file = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (partition.file < 0)
        die(argv[1]);
    if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, 64) ||
        getsockname(listener, (struct sockaddr *)&address, &size))
        die("listen");
    port = ntohs(address.sin_port);
    printf("%d\n", port);
    fflush(stdout);
    for (;;) {
        pthread_t thread;
        int client = accept(listener, NULL, NULL);
        if (client < 0)
            die("accept");
        setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
        if (pthread_create(&thread, NULL, serve, (void *)(intptr_t)client))
            die("thread");
        pthread_detach(thread);
    }
}
