/* Load client for the benchmarks, on librdkafka: no work per record in an interpreter.
 *
 *   client produce BOOTSTRAP TOPIC COUNT SIZE [key=value ...]
 *   client consume BOOTSTRAP TOPIC COUNT 0    [key=value ...]
 *   client latency BOOTSTRAP TOPIC COUNT SIZE [key=value ...]
 *   client transactions BOOTSTRAP TOPIC COUNT SIZE producers=N records=N [key=value ...]
 *
 * Further words are configuration of librdkafka, but for partition=N (default 0) and those of one mode. Prints one JSON object.
 * The clocks begin when the client has started and is connected to the leader.
 *
 * `consume` reads COUNT records from the beginning with consumers=N (default 1) at the same time, each of which has a thread and
 * reads all of them. `latency` has warm_up=N (default 500) unmeasured records before.
 * `transactions` has partitions=N (default 1); it commits COUNT transactions of `records` records; its producers share them,
 * each in a thread of its own, and each writes to one of the partitions.
 * The few declarations that are needed stand here, so that no header has to be installed.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_topic_conf_s rd_kafka_topic_conf_t;
typedef struct {
    int err;
    rd_kafka_topic_t *rkt;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *_private;
} rd_kafka_message_t;

enum { PRODUCER = 0, CONSUMER = 1, OFFSET_BEGINNING = -2 };

rd_kafka_conf_t *rd_kafka_conf_new(void);
int rd_kafka_conf_set(rd_kafka_conf_t *, const char *, const char *, char *, size_t);
void rd_kafka_conf_set_dr_msg_cb(rd_kafka_conf_t *,
                                 void (*)(rd_kafka_t *, const rd_kafka_message_t *, void *));
rd_kafka_t *rd_kafka_new(int, rd_kafka_conf_t *, char *, size_t);
rd_kafka_topic_t *rd_kafka_topic_new(rd_kafka_t *, const char *, rd_kafka_topic_conf_t *);
int rd_kafka_produce(rd_kafka_topic_t *, int32_t, int, void *, size_t, const void *, size_t, void *);
int rd_kafka_produce_batch(rd_kafka_topic_t *, int32_t, int, rd_kafka_message_t *, int);
int rd_kafka_poll(rd_kafka_t *, int);
int rd_kafka_flush(rd_kafka_t *, int);
int rd_kafka_outq_len(rd_kafka_t *);
int rd_kafka_query_watermark_offsets(rd_kafka_t *, const char *, int32_t, int64_t *, int64_t *, int);
int rd_kafka_consume_start(rd_kafka_topic_t *, int32_t, int64_t);
ssize_t rd_kafka_consume_batch(rd_kafka_topic_t *, int32_t, int, rd_kafka_message_t **, size_t);
void rd_kafka_message_destroy(rd_kafka_message_t *);
typedef struct rd_kafka_error_s rd_kafka_error_t;
const char *rd_kafka_error_string(const rd_kafka_error_t *);
rd_kafka_error_t *rd_kafka_init_transactions(rd_kafka_t *, int);
rd_kafka_error_t *rd_kafka_begin_transaction(rd_kafka_t *);
rd_kafka_error_t *rd_kafka_commit_transaction(rd_kafka_t *, int);
rd_kafka_conf_t *rd_kafka_conf_dup(const rd_kafka_conf_t *);

#define BATCH 2000
#define READ_AT_ONCE 10000
#define POOL (8u << 20)

static _Atomic int64_t delivered, failed;
static int32_t partition, producers = 1, consumers = 1, partitions = 1;
static int64_t records = 1, warm_up = 500;

static void on_delivery(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
    (void)rk;
    (void)opaque;
    if (message->err)
        failed++;
    else
        delivered++;
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double cpu_s(void) {
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1e-6;
}

static void die(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

/* Random bytes: an easy pattern would flatter whoever compresses or deduplicates. */
static char *random_pool(void) {
    char *pool = malloc(POOL + (1u << 20));
    uint64_t state = 88172645463325252ull;
    if (!pool)
        die("out of memory");
    for (size_t i = 0; i < POOL + (1u << 20); i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        pool[i] = (char)state;
    }
    return pool;
}

static void produce(rd_kafka_t *rk, rd_kafka_topic_t *topic, int64_t count, size_t size) {
    static rd_kafka_message_t messages[BATCH];
    char *pool = random_pool();
    size_t at = 0;
    int64_t sent = 0;
    double cpu, start;

    if (rd_kafka_produce(topic, partition, 0, pool, size, NULL, 0, NULL) != 0 || rd_kafka_flush(rk, 30000))
        die("the first record was not delivered");
    delivered = 0;
    cpu = cpu_s();
    start = now_s();
    while (sent < count) {
        int wanted = count - sent < BATCH ? (int)(count - sent) : BATCH;
        int done = 0;
        memset(messages, 0, sizeof messages);
        for (int i = 0; i < wanted; i++) {
            messages[i].payload = pool + at;
            messages[i].len = size;
            at = (at + size) % POOL;
        }
        while (done < wanted) {
            int taken = 0;
            rd_kafka_produce_batch(topic, partition, 0, messages + done, wanted - done);
            while (done + taken < wanted && !messages[done + taken].err)
                taken++;
            done += taken;
            rd_kafka_poll(rk, done < wanted ? 5 : 0); /* the queue was full: let it drain */
            for (int i = done; i < wanted; i++)
                messages[i].err = 0;
        }
        sent += wanted;
    }
    if (rd_kafka_flush(rk, 120000) || failed || delivered != count)
        die("records were not delivered");
    printf("{\"seconds\": %.6f, \"client_cpu_s\": %.4f, \"records\": %lld}\n", now_s() - start,
           cpu_s() - cpu, (long long)count);
}

static int by_value(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

static void latency(rd_kafka_t *rk, rd_kafka_topic_t *topic, int64_t count, size_t size) {
    char *pool = random_pool();
    double *times = malloc((size_t)count * sizeof *times);

    for (int64_t i = -warm_up; i < count; i++) {
        double start = now_s();
        int64_t before = delivered;
        char *value = pool + (size_t)(i + warm_up) % 4096;
        if (rd_kafka_produce(topic, partition, 0, value, size, NULL, 0, NULL))
            die("produce failed");
        while (delivered == before) {
            rd_kafka_poll(rk, 1000);
            if (failed)
                die("a record was not delivered");
        }
        if (i >= 0)
            times[i] = now_s() - start;
    }
    qsort(times, (size_t)count, sizeof *times, by_value);
    printf("{\"p50_ms\": %.4f, \"p99_ms\": %.4f, \"max_ms\": %.4f, \"records\": %lld}\n",
           times[count / 2] * 1e3, times[count * 99 / 100] * 1e3, times[count - 1] * 1e3,
           (long long)count);
}

static struct {
    const char *topic;
    const rd_kafka_conf_t *conf;
    char *pool;
    size_t size;
    int64_t count;
    double *times;
    atomic_int_fast64_t begun;
    pthread_barrier_t ready;
} shared;

static void check(rd_kafka_error_t *error) {
    if (error)
        die(rd_kafka_error_string(error));
}

struct reader {
    pthread_t thread;
    double first, end; /* when the first and the last records came */
    int64_t bytes, first_bytes;
};

/* Connect, wait for the others, and read. */
static void *run_consumer(void *argument) {
    struct reader *reader = argument;
    rd_kafka_message_t **messages = malloc(READ_AT_ONCE * sizeof *messages);
    char error[512];
    rd_kafka_t *rk = rd_kafka_new(CONSUMER, rd_kafka_conf_dup(shared.conf), error, sizeof error);
    rd_kafka_topic_t *topic;
    int64_t got = 0, low, high;
    double limit;

    if (!rk || !messages)
        die(error);
    topic = rd_kafka_topic_new(rk, shared.topic, NULL);
    if (rd_kafka_query_watermark_offsets(rk, shared.topic, partition, &low, &high, 30000))
        die("the leader does not answer");
    pthread_barrier_wait(&shared.ready);
    pthread_barrier_wait(&shared.ready);
    limit = now_s() + 120;
    if (rd_kafka_consume_start(topic, partition, OFFSET_BEGINNING))
        die("the consumer did not start");
    while (got < shared.count && now_s() < limit) {
        /* The call returns when it has all that it asks for, so it must not ask for more than is left. */
        int64_t left = shared.count - got;
        size_t wanted = !got ? 1 : left < READ_AT_ONCE ? (size_t)left : READ_AT_ONCE;
        ssize_t n = rd_kafka_consume_batch(topic, partition, 100, messages, wanted);
        for (ssize_t i = 0; i < n; i++) {
            if (!messages[i]->err) {
                reader->bytes += (int64_t)messages[i]->len;
                if (!got++) {
                    reader->first = now_s();
                    reader->first_bytes = reader->bytes;
                }
            }
            rd_kafka_message_destroy(messages[i]);
        }
    }
    reader->end = now_s();
    if (got < shared.count)
        die("records are missing");
    return NULL;
}

static void consume(const char *topic, const rd_kafka_conf_t *conf, int64_t count) {
    struct reader *readers = calloc((size_t)consumers, sizeof *readers);
    double cpu, start, first = 0, end = 0;
    int64_t bytes = 0, first_bytes = 0;

    shared.topic = topic;
    shared.conf = conf;
    shared.count = count;
    pthread_barrier_init(&shared.ready, NULL, (unsigned)consumers + 1);
    for (int i = 0; i < consumers; i++)
        if (pthread_create(&readers[i].thread, NULL, run_consumer, &readers[i]))
            die("no thread");
    pthread_barrier_wait(&shared.ready);
    cpu = cpu_s();
    start = now_s();
    pthread_barrier_wait(&shared.ready);
    for (int i = 0; i < consumers; i++) {
        pthread_join(readers[i].thread, NULL);
        bytes += readers[i].bytes;
        first_bytes += readers[i].first_bytes;
        if (!first || readers[i].first < first)
            first = readers[i].first;
        if (readers[i].end > end)
            end = readers[i].end;
    }
    printf("{\"seconds\": %.6f, \"first_s\": %.6f, \"client_cpu_s\": %.4f, \"bytes\": %lld, "
           "\"bytes_after_first\": %lld}\n",
           end - start, first - start, cpu_s() - cpu, (long long)bytes, (long long)(bytes - first_bytes));
}

/* Each producer takes the next transaction until none is left. */
static void *run_transactions(void *argument) {
    int number = (int)(intptr_t)argument;
    int32_t to = partition + number % partitions;
    char error[512], id[64];
    rd_kafka_conf_t *conf = rd_kafka_conf_dup(shared.conf);
    rd_kafka_topic_t *topic;
    rd_kafka_t *rk;
    int64_t mine;

    snprintf(id, sizeof id, "bench-%d", number);
    if (rd_kafka_conf_set(conf, "transactional.id", id, error, sizeof error) ||
        !(rk = rd_kafka_new(PRODUCER, conf, error, sizeof error)))
        die(error);
    topic = rd_kafka_topic_new(rk, shared.topic, NULL);
    check(rd_kafka_init_transactions(rk, 60000));
    /* One that is not measured opens the connections. */
    for (int is_measured = 0; is_measured < 2; is_measured++) {
        for (;;) {
            double start = now_s();
            if (is_measured && (mine = atomic_fetch_add(&shared.begun, 1)) >= shared.count)
                break;
            check(rd_kafka_begin_transaction(rk));
            for (int64_t i = 0; i < (is_measured ? records : 1); i++) {
                char *value = shared.pool + (size_t)i * shared.size % POOL;
                while (rd_kafka_produce(topic, to, 0, value, shared.size, NULL, 0, NULL))
                    rd_kafka_poll(rk, 5);
            }
            check(rd_kafka_commit_transaction(rk, 60000));
            if (!is_measured)
                break;
            shared.times[mine] = now_s() - start;
        }
        if (!is_measured) {
            pthread_barrier_wait(&shared.ready);
            pthread_barrier_wait(&shared.ready);
        }
    }
    return NULL;
}

static void transactions(const char *topic, const rd_kafka_conf_t *conf, int64_t count, size_t size) {
    pthread_t *threads = malloc((size_t)producers * sizeof *threads);
    double cpu, start, end;

    shared.topic = topic;
    shared.conf = conf;
    shared.pool = random_pool();
    shared.size = size;
    shared.count = count;
    shared.times = malloc((size_t)count * sizeof *shared.times);
    pthread_barrier_init(&shared.ready, NULL, (unsigned)producers + 1);
    for (int i = 0; i < producers; i++)
        if (pthread_create(&threads[i], NULL, run_transactions, (void *)(intptr_t)i))
            die("no thread");
    pthread_barrier_wait(&shared.ready);
    cpu = cpu_s();
    start = now_s();
    pthread_barrier_wait(&shared.ready);
    for (int i = 0; i < producers; i++)
        pthread_join(threads[i], NULL);
    end = now_s();
    if (failed || delivered != count * records + producers)
        die("records were not delivered");
    qsort(shared.times, (size_t)count, sizeof *shared.times, by_value);
    printf("{\"seconds\": %.6f, \"client_cpu_s\": %.4f, \"p50_ms\": %.4f, \"p99_ms\": %.4f}\n", end - start,
           cpu_s() - cpu, shared.times[count / 2] * 1e3, shared.times[count * 99 / 100] * 1e3);
}

int main(int argc, char **argv) {
    char error[512];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_topic_t *topic;
    rd_kafka_t *rk;
    int64_t count;
    size_t size;
    int consuming;

    if (argc < 6)
        die("usage: client produce|consume|latency|transactions BOOTSTRAP TOPIC COUNT SIZE [key=value ...]");
    consuming = !strcmp(argv[1], "consume");
    if (rd_kafka_conf_set(conf, "bootstrap.servers", argv[2], error, sizeof error))
        die(error);
    for (int i = 6; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        if (!value)
            die("configuration must be key=value");
        *value++ = 0;
        if (!strcmp(argv[i], "partition"))
            partition = atoi(value);
        else if (!strcmp(argv[i], "partitions"))
            partitions = atoi(value);
        else if (!strcmp(argv[i], "producers"))
            producers = atoi(value);
        else if (!strcmp(argv[i], "consumers"))
            consumers = atoi(value);
        else if (!strcmp(argv[i], "warm_up"))
            warm_up = atoll(value);
        else if (!strcmp(argv[i], "records"))
            records = atoll(value);
        else if (rd_kafka_conf_set(conf, argv[i], value, error, sizeof error))
            die(error);
    }
    if (!consuming)
        rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    count = atoll(argv[4]);
    size = (size_t)atoll(argv[5]);
    if (consuming)
        consume(argv[3], conf, count);
    else if (!strcmp(argv[1], "transactions"))
        transactions(argv[3], conf, count, size);
    else {
        rk = rd_kafka_new(PRODUCER, conf, error, sizeof error);
        if (!rk)
            die(error);
        topic = rd_kafka_topic_new(rk, argv[3], NULL);
        (!strcmp(argv[1], "latency") ? latency : produce)(rk, topic, count, size);
    }
    fflush(stdout);
    _Exit(0); /* the answer is out: no need to wait for librdkafka's threads */
}
