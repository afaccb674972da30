/* The inner loops of compaction: the key map, and the records of uncompressed batches. At the end
 * are the walk over batch headers of `columnar/headers.py`, which needs the checksums, too,
 * and the audit of the batches of a segment up to the first one that is unusual.
 *
 * `native_kernel.py` loads this through ctypes, which lets other threads run meanwhile. Every
 * function here gives up in front of what it does not handle (a compressed, transactional, control
 * or damaged batch); `cleaning.py` then handles that batch itself. So this file decides nothing
 * that the Python code does not decide as well.
 */

#define _DEFAULT_SOURCE

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

#if defined(_MSC_VER)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

#define HEADER_BYTES 61
#define LOG_OVERHEAD_BYTES 12
#define NEEDS_PYTHON_FLAGS 0x37 /* a codec, transactional, control */
#define APPEND_TIME_FLAG 0x08
#define DELETE_HORIZON_FLAG 0x40
#define HUGE_PAGE_BYTES ((size_t)2 << 20)
#define LARGEST_BASE_OFFSET (INT64_MAX - INT32_MAX - 1) /* so that no offset in a batch overflows */
#define LANE_BYTES 1024 /* of a checksum that is computed in three lanes */
#define GROUP 16 /* keys whose slots are brought into the cache at the same time */
#define MOST_GROWTH_OF_A_RECORD 16 /* its length and its timestamp may need longer numbers */

/* ---- bytes ---- */

static uint32_t get32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static uint64_t get64(const uint8_t *p) { return (uint64_t)get32(p) << 32 | get32(p + 4); }

static void put16(uint8_t *p, uint32_t v) { p[0] = (uint8_t)(v >> 8); p[1] = (uint8_t)v; }

static void put32(uint8_t *p, uint32_t v) { put16(p, v >> 16); put16(p + 2, v); }

static void put64(uint8_t *p, uint64_t v) { put32(p, (uint32_t)(v >> 32)); put32(p + 4, (uint32_t)v); }

/* A zig-zag number of at most 10 bytes; NULL if it does not end before `end`. */
static inline const uint8_t *read_number(const uint8_t *p, const uint8_t *end, int64_t *value) {
    uint64_t raw = 0;
    unsigned shift = 0;
    if (p < end && *p < 0x80) {
        *value = (int64_t)(*p >> 1) ^ -(int64_t)(*p & 1);
        return p + 1;
    }
    while (p < end) {
        uint8_t byte = *p++;
        if (shift == 63 && byte > 1) return NULL;
        raw |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *value = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
            return p;
        }
        shift += 7;
        if (shift > 63) return NULL;
    }
    return NULL;
}

static uint8_t *write_number(uint8_t *p, int64_t value) {
    uint64_t raw = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    while (raw >= 0x80) {
        *p++ = (uint8_t)(raw | 0x80);
        raw >>= 7;
    }
    *p++ = (uint8_t)raw;
    return p;
}

static int size_of_number(int64_t value) {
    uint64_t raw = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    int size = 1;
    while (raw >= 0x80) {
        raw >>= 7;
        size++;
    }
    return size;
}

/* ---- CRC-32C ---- */

static uint32_t crc_tables[8][256];

static void make_crc_tables(void) {
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t crc = n;
        for (int k = 0; k < 8; k++) crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
        crc_tables[0][n] = crc;
    }
    for (uint32_t n = 0; n < 256; n++)
        for (int k = 1; k < 8; k++)
            crc_tables[k][n] = crc_tables[k - 1][n] >> 8 ^ crc_tables[0][crc_tables[k - 1][n] & 0xff];
}

static uint32_t crc_by_table(const uint8_t *p, int64_t size) {
    uint32_t crc = 0xffffffffu;
    for (; size >= 8; p += 8, size -= 8) {
        uint32_t low = crc ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
        crc = crc_tables[7][low & 0xff] ^ crc_tables[6][low >> 8 & 0xff] ^ crc_tables[5][low >> 16 & 0xff] ^
              crc_tables[4][low >> 24] ^ crc_tables[3][p[4]] ^ crc_tables[2][p[5]] ^ crc_tables[1][p[6]] ^
              crc_tables[0][p[7]];
    }
    for (; size > 0; p++, size--) crc = crc >> 8 ^ crc_tables[0][(crc ^ *p) & 0xff];
    return ~crc;
}

#if defined(__x86_64__) && defined(__GNUC__)
static uint64_t word_at(const uint8_t *p) {
    uint64_t word;
    memcpy(&word, p, 8);
    return word;
}

static uint32_t lane_shifts[4][256]; /* what LANE_BYTES zeros make of each byte of a CRC */

__attribute__((target("sse4.2"))) static void make_lane_shifts(void) {
    for (int k = 0; k < 4; k++)
        for (uint64_t n = 0; n < 256; n++) {
            uint64_t crc = n << (8 * k);
            for (int i = 0; i < LANE_BYTES; i += 8) crc = __builtin_ia32_crc32di(crc, 0);
            lane_shifts[k][n] = (uint32_t)crc;
        }
}

static uint64_t shift_by_a_lane(uint64_t crc) {
    return lane_shifts[0][crc & 0xff] ^ lane_shifts[1][crc >> 8 & 0xff] ^ lane_shifts[2][crc >> 16 & 0xff] ^
           lane_shifts[3][crc >> 24 & 0xff];
}

__attribute__((target("sse4.2"))) static uint32_t crc_by_instruction(const uint8_t *p, int64_t size) {
    uint64_t crc = 0xffffffffu;
    /* The instruction can begin in each cycle, but takes three: three lanes at the same time. */
    for (; size >= 3 * LANE_BYTES; p += 3 * LANE_BYTES, size -= 3 * LANE_BYTES) {
        uint64_t second = 0, third = 0;
        for (int i = 0; i < LANE_BYTES; i += 8) {
            crc = __builtin_ia32_crc32di(crc, word_at(p + i));
            second = __builtin_ia32_crc32di(second, word_at(p + LANE_BYTES + i));
            third = __builtin_ia32_crc32di(third, word_at(p + 2 * LANE_BYTES + i));
        }
        crc = shift_by_a_lane(shift_by_a_lane(crc) ^ second) ^ third;
    }
    for (; size >= 8; p += 8, size -= 8) crc = __builtin_ia32_crc32di(crc, word_at(p));
    for (; size > 0; p++, size--) crc = __builtin_ia32_crc32qi((uint32_t)crc, *p);
    return ~(uint32_t)crc;
}
#endif

static uint32_t (*crc32c)(const uint8_t *, int64_t) = crc_by_table;

/* Call it once before anything else. */
EXPORT void spindle_cleaning_begin(void) {
    make_crc_tables();
#if defined(__x86_64__) && defined(__GNUC__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("sse4.2")) {
        make_lane_shifts();
        crc32c = crc_by_instruction;
    }
#endif
}

/* ---- the key map ---- */

/* SipHash-2-4 with 128 bits: with a secret key nobody can choose two keys with the same hash. */

#define ROTATE(x, b) ((x) << (b) | (x) >> (64 - (b)))
#define SIP_ROUND                                                                     \
    do {                                                                              \
        v0 += v1; v1 = ROTATE(v1, 13); v1 ^= v0; v0 = ROTATE(v0, 32);                 \
        v2 += v3; v3 = ROTATE(v3, 16); v3 ^= v2;                                      \
        v0 += v3; v3 = ROTATE(v3, 21); v3 ^= v0;                                      \
        v2 += v1; v1 = ROTATE(v1, 17); v1 ^= v2; v2 = ROTATE(v2, 32);                 \
    } while (0)

static uint64_t little64(const uint8_t *p) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
#else
    uint64_t v = 0;
    for (int i = 7; i >= 0; i--) v = v << 8 | p[i];
    return v;
#endif
}

typedef struct {
    uint64_t low, high;
} hash128;

static hash128 hash_of(const uint8_t *key, int64_t size, uint64_t k0, uint64_t k1) {
    uint64_t v0 = 0x736f6d6570736575ULL ^ k0, v1 = 0x646f72616e646f6dULL ^ k1 ^ 0xee;
    uint64_t v2 = 0x6c7967656e657261ULL ^ k0, v3 = 0x7465646279746573ULL ^ k1;
    uint64_t last = (uint64_t)size << 56;
    hash128 hash;
    for (; size >= 8; key += 8, size -= 8) {
        uint64_t word = little64(key);
        v3 ^= word;
        SIP_ROUND; SIP_ROUND;
        v0 ^= word;
    }
    for (int i = 0; i < size; i++) last |= (uint64_t)key[i] << (8 * i);
    v3 ^= last;
    SIP_ROUND; SIP_ROUND;
    v0 ^= last;
    v2 ^= 0xee;
    SIP_ROUND; SIP_ROUND; SIP_ROUND; SIP_ROUND;
    hash.low = v0 ^ v1 ^ v2 ^ v3;
    v1 ^= 0xdd;
    SIP_ROUND; SIP_ROUND; SIP_ROUND; SIP_ROUND;
    hash.high = v0 ^ v1 ^ v2 ^ v3;
    return hash;
}

typedef struct {
    uint64_t low, high;
    int64_t next_offset; /* of the newest record, plus one; 0: free */
} slot;

typedef struct {
    slot *slots;
    uint64_t slot_count, used, k0, k1;
} key_map;

/* Memory that is not written to is not used: the system gives it page by page. */
EXPORT key_map *spindle_map_new(uint64_t slot_count, uint64_t k0, uint64_t k1) {
    key_map *map = malloc(sizeof *map);
    if (map == NULL) return NULL;
    map->slots = calloc(slot_count, sizeof(slot));
    if (map->slots == NULL) {
        free(map);
        return NULL;
    }
#if defined(MADV_HUGEPAGE)
    if (slot_count * sizeof(slot) >= 4 * HUGE_PAGE_BYTES) {
        uintptr_t first = ((uintptr_t)map->slots + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
        uintptr_t end = (uintptr_t)(map->slots + slot_count) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
        madvise((void *)first, end - first, MADV_HUGEPAGE); /* only faster: an error does no harm */
    }
#endif
    map->slot_count = slot_count;
    map->used = 0;
    map->k0 = k0;
    map->k1 = k1;
    return map;
}

EXPORT void spindle_map_free(key_map *map) {
    free(map->slots);
    free(map);
}

EXPORT uint64_t spindle_map_used(const key_map *map) { return map->used; }

static uint64_t place_of(const key_map *map, hash128 hash) {
#if defined(__SIZEOF_INT128__)
    return (uint64_t)((unsigned __int128)hash.low * map->slot_count >> 64);
#else
    return hash.low % map->slot_count;
#endif
}

static hash128 begin_look_up(const key_map *map, const uint8_t *key, int64_t size) {
    hash128 hash = hash_of(key, size, map->k0, map->k1);
#if defined(__GNUC__)
    __builtin_prefetch(&map->slots[place_of(map, hash)], 1);
#endif
    return hash;
}

/* The slot of the key, or the free one where it belongs. One slot is always free. */
static slot *slot_of(const key_map *map, hash128 hash) {
    uint64_t i = place_of(map, hash);
    for (;;) {
        slot *s = &map->slots[i];
        if (s->next_offset == 0 || (s->low == hash.low && s->high == hash.high)) return s;
        if (++i == map->slot_count) i = 0;
    }
}

static int put(key_map *map, hash128 hash, int64_t offset) {
    slot *s = slot_of(map, hash);
    if (s->next_offset == 0) {
        if (map->used + 1 >= map->slot_count) return 0;
        map->used++;
        s->low = hash.low;
        s->high = hash.high;
    }
    s->next_offset = offset + 1;
    return 1;
}

/* Return 0 if the map has no room for another key. */
EXPORT int spindle_map_put(key_map *map, const uint8_t *key, int64_t size, int64_t offset) {
    return put(map, hash_of(key, size, map->k0, map->k1), offset);
}

/* The offset of the newest record with the key, -1 if there is none. */
EXPORT int64_t spindle_map_get(const key_map *map, const uint8_t *key, int64_t size) {
    return slot_of(map, hash_of(key, size, map->k0, map->k1))->next_offset - 1;
}

/* ---- records ---- */

typedef struct {
    const uint8_t *body;   /* its attributes */
    const uint8_t *rest;   /* what follows the timestamp delta */
    const uint8_t *end;
    const uint8_t *key;    /* NULL: without a key */
    int64_t key_bytes, timestamp_delta, offset_delta;
    int is_tombstone;
} record;

static const uint8_t *skip_field(const uint8_t *p, const uint8_t *end, int64_t *size) {
    p = read_number(p, end, size);
    if (p == NULL || *size < -1 || *size > end - p) return NULL;
    return *size > 0 ? p + *size : p;
}

/* Read the record at `p`; return where the next one starts, NULL if it is not exactly a record. */
static const uint8_t *read_record(const uint8_t *p, const uint8_t *end, record *r) {
    int64_t size, value_bytes, headers;
    p = read_number(p, end, &size);
    if (p == NULL || size < 6 || size > end - p) return NULL;
    end = p + size;
    r->body = p;
    r->end = end;
    p = read_number(p + 1, end, &r->timestamp_delta);
    if (p == NULL) return NULL;
    r->rest = p;
    p = read_number(p, end, &r->offset_delta);
    if (p == NULL || r->offset_delta < 0 || r->offset_delta > INT32_MAX) return NULL;
    p = skip_field(p, end, &r->key_bytes);
    if (p == NULL) return NULL;
    r->key = r->key_bytes < 0 ? NULL : p - r->key_bytes;
    p = skip_field(p, end, &value_bytes);
    if (p == NULL) return NULL;
    r->is_tombstone = value_bytes < 0;
    p = read_number(p, end, &headers);
    if (p == NULL || headers < 0 || headers > end - p) return NULL;
    for (; headers > 0; headers--) {
        int64_t bytes;
        p = skip_field(p, end, &bytes);
        if (p == NULL || bytes < 0) return NULL;
        p = skip_field(p, end, &bytes);
        if (p == NULL) return NULL;
    }
    return p == end ? end : NULL;
}

static int is_base_offset(int64_t offset) { return offset >= 0 && offset <= LARGEST_BASE_OFFSET; }

/* Note the keys of a batch's records, from `first_offset` on.
 * Return 1; 0 if the map is full (some keys may be noted then); -1 if the records do not parse. */
EXPORT int spindle_map_records(key_map *map, const uint8_t *data, int64_t size, int64_t count,
                               int64_t base_offset, int64_t first_offset) {
    const uint8_t *p = data, *end = data + size;
    hash128 hashes[GROUP];
    int64_t offsets[GROUP];
    record r;
    if (!is_base_offset(base_offset)) return -1;
    while (count > 0) {
        int held = 0;
        for (; count > 0 && held < GROUP; count--) {
            p = read_record(p, end, &r);
            if (p == NULL) return -1;
            if (r.key == NULL || base_offset + r.offset_delta < first_offset) continue;
            hashes[held] = begin_look_up(map, r.key, r.key_bytes);
            offsets[held++] = base_offset + r.offset_delta;
        }
        for (int i = 0; i < held; i++)
            if (!put(map, hashes[i], offsets[i])) return 0;
    }
    return p == end ? 1 : -1;
}

typedef struct {
    /* what is given */
    int64_t count, base_offset, base_timestamp, max_timestamp;
    int64_t has_append_time, has_horizon;
    int64_t known_end;      /* keys are known below this offset; records from here on stay */
    int64_t now_ms, new_horizon_ms;
    /* what is found */
    int64_t kept, sets_horizon, is_unchanged;
    int64_t new_base_timestamp, new_max_timestamp;
} filter;

static int stays(const key_map *map, const filter *f, const record *r, hash128 hash) {
    int64_t offset = f->base_offset + r->offset_delta;
    if (offset >= f->known_end) return 1;
    if (r->key == NULL || offset < slot_of(map, hash)->next_offset - 1) return 0;
    return !(r->is_tombstone && f->has_horizon && f->base_timestamp <= f->now_ms);
}

/* Write the records that stay to `out`, if some go or the batch gets a delete horizon.
 * Return the count of bytes written; -1 if the records do not parse, have a time that no batch can
 * hold, or do not fit. `is_kept` has room for `count` bytes. */
EXPORT int64_t spindle_filter_records(const key_map *map, const uint8_t *data, int64_t size, filter *f,
                                      uint8_t *is_kept, uint8_t *out, int64_t room) {
    const uint8_t *p = data, *end = data + size;
    uint8_t *q = out;
    record group[GROUP], r;
    hash128 hashes[GROUP];
    int64_t tombstones = 0, timestamp, delta, body, i = 0;
    f->kept = f->sets_horizon = f->is_unchanged = 0;
    f->new_base_timestamp = f->new_max_timestamp = -1;
    if (!is_base_offset(f->base_offset)) return -1;
    while (i < f->count) {
        int held = 0;
        for (; held < GROUP && i + held < f->count; held++) {
            p = read_record(p, end, &group[held]);
            if (p == NULL) return -1;
            if (group[held].key != NULL)
                hashes[held] = begin_look_up(map, group[held].key, group[held].key_bytes);
        }
        for (int n = 0; n < held; n++, i++) {
            is_kept[i] = (uint8_t)stays(map, f, &group[n], hashes[n]);
            if (!is_kept[i]) continue;
            timestamp = f->max_timestamp;
            if (!f->has_append_time &&
                __builtin_add_overflow(f->base_timestamp, group[n].timestamp_delta, &timestamp))
                return -1;
            if (f->kept == 0) f->new_base_timestamp = timestamp;
            if (f->kept == 0 || timestamp > f->new_max_timestamp) f->new_max_timestamp = timestamp;
            f->kept++;
            tombstones += group[n].is_tombstone;
        }
    }
    if (p != end) return -1;
    f->sets_horizon = tombstones > 0 && !f->has_horizon;
    f->is_unchanged = f->kept == f->count && !f->sets_horizon;
    if (f->kept == 0 || f->is_unchanged) return 0;
    if (f->has_append_time) f->new_max_timestamp = f->max_timestamp;
    if (f->sets_horizon) f->new_base_timestamp = f->new_horizon_ms;
    else if (f->has_horizon) f->new_base_timestamp = f->base_timestamp;
    if (size + f->kept * MOST_GROWTH_OF_A_RECORD > room) return -1;
    p = data;
    for (i = 0; i < f->count; i++) {
        p = read_record(p, end, &r);
        if (!is_kept[i]) continue;
        timestamp = f->has_append_time ? f->max_timestamp : f->base_timestamp + r.timestamp_delta;
        if (__builtin_sub_overflow(timestamp, f->new_base_timestamp, &delta)) return -1;
        body = 1 + size_of_number(delta) + (r.end - r.rest);
        q = write_number(q, body);
        *q++ = 0;
        q = write_number(q, delta);
        memcpy(q, r.rest, (size_t)(r.end - r.rest));
        q += r.end - r.rest;
    }
    return q - out;
}

/* ---- whole batches ---- */

typedef struct {
    int64_t last_offset, position, max_timestamp, max_timestamp_offset;
} index_point;

typedef struct {
    /* what is given */
    int64_t first_offset;         /* keys of records below are not noted */
    int64_t end_offset;           /* batches that end here or later are not mapped */
    int64_t key_limit;            /* the map is full with this many keys */
    int64_t known_end, now_ms, new_horizon_ms; /* see filter */
    int64_t index_interval_bytes, point_room;
    int64_t round_end;            /* a batch that ends right before it stays, if need be empty */
    const int64_t *last_offsets;  /* ascending; batches that end there may have to stay as well */
    int64_t last_offset_count;
    /* what goes on from call to call */
    int64_t mapped_end;           /* the end of the last batch that was mapped */
    int64_t max_timestamp, max_timestamp_offset, bytes_since_point;
    int64_t records_read, records_kept;
    /* what one call gives */
    int64_t written, points;
} walk;

/* The size of the whole batch at `p` if this file handles it, else 0. */
static int64_t plain_batch(const uint8_t *p, int64_t left) {
    int64_t size;
    int32_t length;
    if (left < HEADER_BYTES || !is_base_offset((int64_t)get64(p))) return 0;
    length = (int32_t)get32(p + 8);
    if (length < HEADER_BYTES - LOG_OVERHEAD_BYTES) return 0;
    size = (int64_t)length + LOG_OVERHEAD_BYTES;
    if (size > left || p[16] != 2 || (p[22] & NEEDS_PYTHON_FLAGS) || (int32_t)get32(p + 23) < 0) return 0;
    if ((int64_t)(int32_t)get32(p + 57) < 0 || (int64_t)(int32_t)get32(p + 57) > size / 7) return 0;
    if (crc32c(p + 21, size - 21) != get32(p + 17)) return 0;
    return size;
}

/* Map the batches of `data` from `at` on; return where the first one starts that was not mapped. */
EXPORT int64_t spindle_map_batches(key_map *map, const uint8_t *data, int64_t size, int64_t at, walk *w) {
    for (;;) {
        const uint8_t *p = data + at;
        int64_t bytes = plain_batch(p, size - at), base_offset, last_offset, count;
        if (bytes == 0) return at;
        base_offset = (int64_t)get64(p);
        last_offset = base_offset + (int32_t)get32(p + 23);
        count = (int32_t)get32(p + 57);
        if (last_offset >= w->end_offset) return at;
        if (last_offset >= w->first_offset) {
            if ((int64_t)map->used + count > w->key_limit) return at;
            if (spindle_map_records(map, p + HEADER_BYTES, bytes - HEADER_BYTES, count, base_offset,
                                    w->first_offset) != 1)
                return at;
            w->mapped_end = last_offset + 1;
        }
        at += bytes;
    }
}

static void note_point(walk *w, index_point *points, const uint8_t *header, int64_t position, int64_t bytes) {
    int64_t last_offset = (int64_t)get64(header) + (int32_t)get32(header + 23);
    int64_t max_timestamp = (int64_t)get64(header + 35);
    if (max_timestamp > w->max_timestamp) {
        w->max_timestamp = max_timestamp;
        w->max_timestamp_offset = last_offset;
    }
    if (w->bytes_since_point > w->index_interval_bytes) {
        index_point point = {last_offset, position, w->max_timestamp, w->max_timestamp_offset};
        points[w->points++] = point;
        w->bytes_since_point = 0;
    }
    w->bytes_since_point += bytes;
}

static int may_have_to_stay(const walk *w, const uint8_t *header) {
    int64_t last_offset = (int64_t)get64(header) + (int32_t)get32(header + 23);
    int64_t low = 0, high = w->last_offset_count;
    if (last_offset + 1 == w->round_end) return 1;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (w->last_offsets[middle] < last_offset) low = middle + 1;
        else high = middle;
    }
    return low < w->last_offset_count && w->last_offsets[low] == last_offset;
}

/* Write what stays of the batches of `data` from `at` on to `out`, and note where the index needs
 * an entry (positions count from the beginning of `out`). Return where the first batch starts that
 * was not handled: one that is not plain, one that may have to stay empty, or one without room.
 * `is_kept` has room for `room` bytes. */
EXPORT int64_t spindle_copy_batches(const key_map *map, const uint8_t *data, int64_t size, int64_t at, walk *w,
                                    uint8_t *is_kept, uint8_t *out, int64_t room, index_point *points) {
    w->written = w->points = 0;
    for (;;) {
        const uint8_t *p = data + at;
        uint8_t *q = out + w->written;
        int64_t bytes = plain_batch(p, size - at), written, left = room - w->written;
        filter f;
        if (bytes == 0 || w->points >= w->point_room) return at;
        f.count = (int32_t)get32(p + 57);
        if (left < bytes + f.count * MOST_GROWTH_OF_A_RECORD) return at;
        f.base_offset = (int64_t)get64(p);
        f.base_timestamp = (int64_t)get64(p + 27);
        f.max_timestamp = (int64_t)get64(p + 35);
        f.has_append_time = (p[22] & APPEND_TIME_FLAG) != 0;
        f.has_horizon = (p[22] & DELETE_HORIZON_FLAG) != 0;
        f.known_end = w->known_end;
        f.now_ms = w->now_ms;
        f.new_horizon_ms = w->new_horizon_ms;
        written = spindle_filter_records(map, p + HEADER_BYTES, bytes - HEADER_BYTES, &f, is_kept,
                                         q + HEADER_BYTES, left - HEADER_BYTES);
        if (written < 0 || (f.kept == 0 && may_have_to_stay(w, p))) return at;
        w->records_read += f.count;
        w->records_kept += f.kept;
        if (f.kept == 0) {
            at += bytes;
            continue;
        }
        if (f.is_unchanged) {
            memcpy(q, p, (size_t)bytes);
            written = bytes;
        } else {
            written += HEADER_BYTES;
            memcpy(q, p, HEADER_BYTES);
            put32(q + 8, (uint32_t)(written - LOG_OVERHEAD_BYTES));
            if (f.sets_horizon) q[22] |= DELETE_HORIZON_FLAG;
            put64(q + 27, (uint64_t)f.new_base_timestamp);
            put64(q + 35, (uint64_t)f.new_max_timestamp);
            put32(q + 57, (uint32_t)f.kept);
            put32(q + 17, crc32c(q + 21, written - 21));
        }
        note_point(w, points, q, w->written, written);
        w->written += written;
        at += bytes;
    }
}

/* ---- the walk over batch headers ---- */

/* `columnar/header_kernel.py` and `record_walk.py` say what these do; the order of their
 * checks, the codes and the columns are the same here. */

enum { OLD_FORMAT = 1, UNKNOWN_FORMAT, WRONG_LENGTH, WRONG_COUNT = 5, WRONG_OFFSETS };
enum { ENDS_EARLY = 1, WRONG_RECORD_LENGTH, WRONG_FIELD, TRAILING, NULL_HEADER_KEY, WRONG_OFFSET, WRONG_ORDER };
enum { WALK_STATUS, WALK_POSITION, WALK_BATCHES, WALK_NEXT_OFFSET, WALK_FINISHED, WALK_TORN };
#define CONTROL_FLAG 0x20
#define CODEC_MASK 0x07
#define RECORDS_ARE_PACKED (-1)
#define LEAST_RECORD_BYTES 6

/* A zig-zag number; NULL if it exceeds `end` or ten bytes. Bits above the 64th are ignored. */
static const uint8_t *read_long(const uint8_t *p, const uint8_t *end, int64_t *value) {
    uint64_t raw = 0;
    for (unsigned shift = 0; p < end && shift < 70; shift += 7) {
        uint8_t byte = *p++;
        raw |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *value = (int64_t)(raw >> 1 ^ (0 - (raw & 1)));
            return p;
        }
    }
    return NULL;
}

/* Move `*p` behind a field, which may be null except for a header's key; return the finding. */
static inline int pass_field(const uint8_t **p, const uint8_t *end, int is_header_key, int64_t *size) {
    *p = read_long(*p, end, size);
    if (*p == NULL) return WRONG_RECORD_LENGTH;
    if (is_header_key && *size < 0) return NULL_HEADER_KEY;
    if (*size < -1 || *size > end - *p) return WRONG_FIELD;
    if (*size > 0) *p += *size;
    return 0;
}

typedef struct { int64_t key_size, value_size; const uint8_t *key_end; } key_and_value;

/* Move `*p` behind a record, from the length of its key on; return the finding. */
static inline int pass_fields(const uint8_t **p, const uint8_t *end, key_and_value *fields) {
    int64_t count, size;
    int found = pass_field(p, end, 0, &fields->key_size);
    fields->key_end = *p;
    if (!found) found = pass_field(p, end, 0, &fields->value_size);
    if (found) return found;
    *p = read_long(*p, end, &count);
    if (*p == NULL) return WRONG_RECORD_LENGTH;
    if (count < 0 || count > (end - *p) / 2) return WRONG_FIELD;
    for (; count > 0; count--) {
        found = pass_field(p, end, 1, &size);
        if (!found) found = pass_field(p, end, 0, &size);
        if (found) return found;
    }
    return *p == end ? 0 : WRONG_RECORD_LENGTH;
}

#define HIGH_SEED UINT64_C(0x1B873593CC9E2D51)
#define LOW_SEED UINT64_C(0x165667B19E3779F9)
#define DIGEST_FACTOR UINT64_C(0x2545F4914F6CDD1D)
#define TOMBSTONE 0

/* The hash of `record_walk.py`: files of digests from both ways are compared with each other. */
static uint64_t digest_of(const uint8_t *p, const uint8_t *end, uint64_t seed) {
    uint64_t digest = seed ^ (uint64_t)(end - p) * DIGEST_FACTOR, rest = 0;
    for (; end - p >= 8; p += 8) {
        digest = (digest ^ get64(p)) * DIGEST_FACTOR;
        digest ^= digest >> 29;
    }
    while (p < end) rest = rest << 8 | *p++;
    digest = (digest ^ rest) * DIGEST_FACTOR;
    digest ^= digest >> 29;
    digest *= DIGEST_FACTOR;
    return digest ^ digest >> 32;
}

typedef struct { int64_t key_high, key_low, offset, content; } record_digest;

/* Check the records of a batch; return the finding and set the byte within the records. Unless
 * `*digests` is NULL, make the digests of those that have a key, and move it behind them. */
static inline int check_records(const uint8_t *start, const uint8_t *end, int64_t count, int64_t last_delta,
                                int64_t *byte, int64_t base_offset, record_digest **digests) {
    const uint8_t *p = start, *record_end, *content;
    int64_t size, delta, before = -1;
    key_and_value fields;
    int found;
    for (; count > 0; count--) {
        p = read_long(p, end, &size);
        *byte = p == NULL ? 0 : p - start;
        if (p == NULL || size < LEAST_RECORD_BYTES || size > end - p) return ENDS_EARLY;
        record_end = p + size;
        p = read_long(p + 1, record_end, &delta); /* of the timestamp */
        if (p != NULL) p = read_long(p, record_end, &delta);
        *byte = p == NULL ? 0 : p - start;
        if (p == NULL) return WRONG_RECORD_LENGTH;
        if (delta < 0 || delta > last_delta) return WRONG_OFFSET;
        if (delta <= before) return WRONG_ORDER;
        before = delta;
        content = p;
        found = pass_fields(&p, record_end, &fields);
        *byte = p == NULL ? 0 : p - start;
        if (found) return found;
        if (digests != NULL && fields.key_size >= 0) {
            const uint8_t *key = fields.key_end - fields.key_size;
            record_digest *digest = (*digests)++;
            digest->key_high = (int64_t)digest_of(key, fields.key_end, HIGH_SEED);
            digest->key_low = (int64_t)digest_of(key, fields.key_end, LOW_SEED);
            digest->offset = base_offset + delta;
            digest->content = TOMBSTONE;
            if (fields.value_size >= 0)
                digest->content = (int64_t)(digest_of(content, record_end, LOW_SEED) | 1);
        }
    }
    *byte = p - start;
    return p == end ? 0 : TRAILING;
}

/* The same for the records that a batch had compressed. */
EXPORT int spindle_check_records(const uint8_t *data, int64_t size, int64_t count, int64_t last_delta,
                                 int64_t *byte) {
    return check_records(data, data + size, count, last_delta, byte, 0, NULL);
}

enum { ADDRESS, LENGTH, BASE_OFFSET, LAST_DELTA = 5, COUNT, TABLE_WIDTH = 10 };

/* See `digest_records` of `record_walk.py`: `table` has a row of TABLE_WIDTH numbers for a batch.
 * There must be room for a digest of each record. Return how many were made. */
EXPORT int64_t spindle_digest_records(const int64_t *table, int64_t batches, record_digest *digests) {
    record_digest *next = digests;
    for (const int64_t *row = table; row < table + batches * TABLE_WIDTH; row += TABLE_WIDTH) {
        const uint8_t *start = (const uint8_t *)(uintptr_t)row[ADDRESS];
        record_digest *first = next;
        int64_t byte;
        if (check_records(start, start + row[LENGTH], row[COUNT], row[LAST_DELTA], &byte, row[BASE_OFFSET], &next))
            next = first; /* of a batch that contradicts itself, none counts */
    }
    return next - digests;
}

/* See `walk_headers` of `header_kernel.py`: byte 0 of the file would be at `address`. A table has
 * `room` columns; `records` may be NULL. */
EXPORT void spindle_walk_headers(int64_t address, int64_t position, int64_t end, int64_t file_end,
                                 const int64_t *limits, int check_crcs, int64_t *table, int64_t room,
                                 int64_t *records, int64_t *result) {
    int64_t count = 0;
    while (end - position >= HEADER_BYTES && count < room) {
        const uint8_t *p = (const uint8_t *)(uintptr_t)(address + position);
        int64_t size = (int64_t)(int32_t)get32(p + 8) + LOG_OVERHEAD_BYTES;
        int64_t base_offset = (int64_t)get64(p), last_delta = (int32_t)get32(p + 23);
        int64_t next_offset, record_count = (int32_t)get32(p + 57);
        if (p[16] < 2 && size == LOG_OVERHEAD_BYTES) { /* zeros were never written */
            result[WALK_TORN] = 1;
            break;
        }
        if (p[16] != 2) {
            result[WALK_STATUS] = p[16] < 2 ? OLD_FORMAT : UNKNOWN_FORMAT;
            break;
        }
        if (size < HEADER_BYTES) {
            result[WALK_STATUS] = WRONG_LENGTH;
            break;
        }
        if (file_end - position < size) {
            result[WALK_TORN] = 1;
            break;
        }
        if (check_crcs && end - position < size) break;
        if (base_offset < 0 || last_delta < 0 || base_offset >= INT64_MAX - last_delta) {
            result[WALK_STATUS] = WRONG_OFFSETS;
            break;
        }
        if (base_offset >= limits[1]) {
            result[WALK_FINISHED] = 1;
            break;
        }
        if (record_count < 0 || record_count > last_delta + 1) {
            result[WALK_STATUS] = WRONG_COUNT;
            break;
        }
        next_offset = base_offset + last_delta + 1;
        if (next_offset > limits[0]) {
            int64_t crc = get32(p + 17), computed = check_crcs ? crc32c(p + 21, size - 21) : crc;
            int64_t attributes = (int16_t)((uint16_t)p[21] << 8 | p[22]);
            int64_t *column = table + count;
            const int64_t fields[] = {
                position, size, base_offset, (int32_t)get32(p + 12), crc, attributes, last_delta,
                (int64_t)get64(p + 27), (int64_t)get64(p + 35), (int64_t)get64(p + 43),
                (int16_t)((uint16_t)p[51] << 8 | p[52]), (int32_t)get32(p + 53), record_count, computed,
            };
            for (size_t n = 0; n < sizeof fields / sizeof *fields; n++) column[(int64_t)n * room] = fields[n];
            if (records != NULL) {
                int64_t *status = records + count, *byte = status + room;
                *status = 0;
                if (crc == computed && record_count != 0 && !(attributes & CONTROL_FLAG)) {
                    if (attributes & CODEC_MASK) *status = RECORDS_ARE_PACKED;
                    else *status = check_records(p + HEADER_BYTES, p + size, record_count, last_delta, byte, 0, NULL);
                }
            }
            count++;
        }
        position += size;
        result[WALK_NEXT_OFFSET] = next_offset;
        if (next_offset >= limits[1]) {
            result[WALK_FINISHED] = 1;
            break;
        }
    }
    result[WALK_POSITION] = position;
    result[WALK_BATCHES] = count;
}

/* ---- the audit of a segment up to its first unusual batch ---- */

/* `audit/sound_walk.py` says what this does. It reports nothing: in front of whatever the checks
 * over NumPy columns would report or treat in a special way, it stops, and they go on from there. */

#define OTHER_FLAGS 0x30 /* transactional, control */
#define LAST_CODEC 4
#define MAX_RELATIVE_OFFSET INT32_MAX
#define EPOCH_RUNS 256
#define PRODUCER_SLOTS 1024
#define PRODUCERS 768
#define STRETCHES 1024
#define STRETCH_OFFSETS 4096
#define TAIL_BATCHES 1024
#define PACKED_BATCHES 1024
#define TIMES_BEHIND 64
#define OFFSET_ENTRY_BYTES 8
#define TIME_ENTRY_BYTES 12

enum { AT_END, PAUSED, NEEDS_ROOM, UNUSUAL };

typedef struct { int64_t position, epoch, first_offset, last_offset; } epoch_run;
typedef struct { int64_t is_used, id, epoch, base_sequence, last_delta, last_offset; } last_batch;
typedef struct { int64_t number; uint64_t sum; } stretch_sum;
typedef struct { int64_t base_offset; uint64_t mixed; } batch_digest;
typedef struct { int64_t start, size, codec, count, last_delta, position; } packed_batch;

typedef struct {
    /* what is given */
    int64_t file, size_bytes, base_offset, checks_records, max_batch_bytes;
    const uint8_t *offset_entries, *time_entries;
    int64_t offset_entry_count, time_entry_count;
    int64_t snapshot_offset; /* batches from here on are not read before the producers are taken */
    int64_t budget_bytes;    /* read in one call, and a window more */
    /* what goes on from call to call */
    int64_t position, batch_count, first_offset, next_offset, is_rewritten, last_position;
    int64_t greatest_timestamp, starts_seen, ends_seen, times_seen;
    int64_t run_count, behind_count;
    /* what the caller takes, and sets to 0 */
    int64_t producer_count, stretch_count, packed_count;
    /* what one call gives */
    int64_t is_at_snapshot, needed_bytes;
    epoch_run runs[EPOCH_RUNS];
    int64_t times_behind[TIMES_BEHIND]; /* positions of the batches that time entries name */
    last_batch producers[PRODUCER_SLOTS];
    stretch_sum stretches[STRETCHES];
    batch_digest tail[TAIL_BATCHES]; /* the batch with number n is at n % TAIL_BATCHES */
    packed_batch packed[PACKED_BATCHES];
} sound_walk;

static int32_t entry_number(const uint8_t *entries, int64_t index, int64_t entry_bytes, int64_t at) {
    return (int32_t)get32(entries + index * entry_bytes + at);
}

/* Whether the entries of the offset index that name this batch agree with it. */
static int has_right_offset_entries(sound_walk *w, int64_t position, int64_t last_offset) {
    const uint8_t *entries = w->offset_entries;
    int64_t wanted, named;
    if (w->starts_seen < w->offset_entry_count) {
        named = entry_number(entries, w->starts_seen, OFFSET_ENTRY_BYTES, 4);
        if (named < position) return 0;
        w->starts_seen += named == position;
    }
    if (w->ends_seen == w->offset_entry_count) return 1;
    wanted = w->base_offset + entry_number(entries, w->ends_seen, OFFSET_ENTRY_BYTES, 0);
    if (wanted > last_offset) return 1;
    named = entry_number(entries, w->ends_seen, OFFSET_ENTRY_BYTES, 4);
    if (wanted < last_offset || position < named) return 0;
    w->ends_seen++;
    return w->ends_seen == w->offset_entry_count ||
           position < entry_number(entries, w->ends_seen, OFFSET_ENTRY_BYTES, 4);
}

/* The same for the time index; `greatest_timestamp` is that up to this batch. */
static int has_right_time_entries(sound_walk *w, int64_t position, int64_t base_offset, int64_t last_offset,
                                  int64_t max_timestamp) {
    int64_t last_named = 0, offset, timestamp;
    if (w->offset_entry_count > 0)
        last_named = entry_number(w->offset_entries, w->offset_entry_count - 1, OFFSET_ENTRY_BYTES, 4);
    for (; w->times_seen < w->time_entry_count; w->times_seen++) {
        offset = w->base_offset + entry_number(w->time_entries, w->times_seen, TIME_ENTRY_BYTES, 8);
        if (offset > last_offset) return 1;
        timestamp = (int64_t)get64(w->time_entries + w->times_seen * TIME_ENTRY_BYTES);
        if (offset < base_offset || timestamp != max_timestamp || timestamp != w->greatest_timestamp) return 0;
        if (position > last_named) {
            if (w->behind_count == TIMES_BEHIND) return 0;
            w->times_behind[w->behind_count++] = position;
        }
    }
    return 1;
}

static void note_producer(sound_walk *w, const uint8_t *p, int64_t id, int64_t last_delta, int64_t last_offset) {
    uint64_t at = (uint64_t)id * 0x9E3779B97F4A7C15u >> 54; /* the upper bits: PRODUCER_SLOTS is 2**10 */
    last_batch *slot = &w->producers[at];
    while (slot->is_used && slot->id != id) slot = &w->producers[at = (at + 1) % PRODUCER_SLOTS];
    w->producer_count += !slot->is_used;
    slot->is_used = 1;
    slot->id = id;
    slot->epoch = (int16_t)((uint16_t)p[51] << 8 | p[52]);
    slot->base_sequence = (int32_t)get32(p + 53);
    slot->last_delta = last_delta;
    slot->last_offset = last_offset;
}

static void note_digest(sound_walk *w, int64_t base_offset, int64_t last_delta, int64_t crc, int64_t epoch) {
    static const uint64_t factors[] = {
        0x9E3779B97F4A7C15u, 0xC2B2AE3D27D4EB4Fu, 0x165667B19E3779F9u, 0xD6E8FEB86659FD93u};
    const int64_t fields[] = {base_offset, last_delta, crc, epoch};
    int64_t number = base_offset / STRETCH_OFFSETS;
    batch_digest *digest = &w->tail[w->batch_count % TAIL_BATCHES];
    uint64_t mixed = 0;
    for (int i = 0; i < 4; i++) {
        mixed = (mixed ^ (uint64_t)fields[i]) * factors[i];
        mixed ^= mixed >> 29;
    }
    digest->base_offset = base_offset;
    digest->mixed = mixed;
    if (w->stretch_count == 0 || w->stretches[w->stretch_count - 1].number != number) {
        w->stretches[w->stretch_count].number = number;
        w->stretches[w->stretch_count++].sum = 0;
    }
    w->stretches[w->stretch_count - 1].sum += mixed;
}

/* Whether the entries of both indexes that name this batch agree with it; else nothing has changed. */
static int has_right_entries(sound_walk *w, int64_t base_offset, int64_t last_offset, int64_t max_timestamp) {
    int64_t greatest = w->greatest_timestamp, starts = w->starts_seen, ends = w->ends_seen;
    int64_t times = w->times_seen, behind = w->behind_count;
    if (max_timestamp > greatest) w->greatest_timestamp = max_timestamp;
    if (has_right_offset_entries(w, w->position, last_offset) &&
        has_right_time_entries(w, w->position, base_offset, last_offset, max_timestamp))
        return 1;
    w->greatest_timestamp = greatest;
    w->starts_seen = starts;
    w->ends_seen = ends;
    w->times_seen = times;
    w->behind_count = behind;
    return 0;
}

/* Whether the offsets of a batch belong into the segment and follow those of the batch before it. */
static int has_usual_offsets(const sound_walk *w, const uint8_t *p) {
    int64_t base_offset = (int64_t)get64(p), last_delta = (int32_t)get32(p + 23);
    if (!is_base_offset(base_offset) || base_offset < w->base_offset || last_delta < 0) return 0;
    if (base_offset + last_delta - w->base_offset > MAX_RELATIVE_OFFSET) return 0;
    return w->batch_count == 0 || base_offset == w->next_offset;
}

/* Note a batch with usual offsets, all of whose `size` bytes are at `p`; return 0 if it is unusual. */
static int note_batch(sound_walk *w, const uint8_t *p, int64_t size, int64_t start) {
    int64_t base_offset = (int64_t)get64(p), epoch = (int32_t)get32(p + 12), crc = get32(p + 17);
    int64_t last_delta = (int32_t)get32(p + 23), max_timestamp = (int64_t)get64(p + 35);
    int64_t producer_id = (int64_t)get64(p + 43), count = (int32_t)get32(p + 57), last_offset, byte;
    int codec = p[22] & CODEC_MASK;
    if (count < 0 || count > last_delta + 1) return 0;
    last_offset = base_offset + last_delta;
    if (codec > LAST_CODEC || (p[22] & OTHER_FLAGS) || crc32c(p + 21, size - 21) != (uint32_t)crc) return 0;
    if (w->checks_records && count > 0 && codec == 0 &&
        check_records(p + HEADER_BYTES, p + size, count, last_delta, &byte, 0, NULL) != 0)
        return 0;
    if (w->run_count == EPOCH_RUNS && w->runs[EPOCH_RUNS - 1].epoch != epoch) return 0;
    if (!has_right_entries(w, base_offset, last_offset, max_timestamp)) return 0;
    if (w->checks_records && count > 0 && codec != 0) {
        packed_batch packed = {start, size, codec, count, last_delta, w->position};
        w->packed[w->packed_count++] = packed;
    }
    if (w->run_count == 0 || w->runs[w->run_count - 1].epoch != epoch) {
        epoch_run run = {w->position, epoch, base_offset, last_offset};
        w->runs[w->run_count++] = run;
    }
    w->runs[w->run_count - 1].last_offset = last_offset;
    if (producer_id >= 0) note_producer(w, p, producer_id, last_delta, last_offset);
    note_digest(w, base_offset, last_delta, crc, epoch);
    if (count != last_delta + 1 || (p[22] & DELETE_HORIZON_FLAG)) w->is_rewritten = 1;
    if (w->batch_count++ == 0) w->first_offset = base_offset;
    w->next_offset = last_offset + 1;
    w->last_position = w->position;
    return 1;
}

/* Return how many entries an offset index has before the zeros at its end; -1 if they do not ascend.
 * `gaps` gets the smallest and the largest distance between their positions, and the last position. */
EXPORT int64_t spindle_offset_index(const uint8_t *data, int64_t size, int64_t *gaps) {
    int64_t count = size / OFFSET_ENTRY_BYTES;
    int32_t offset, position, offset_before = 0, position_before = 0;
    while (count > 0 && get64(data + (count - 1) * OFFSET_ENTRY_BYTES) == 0) count--;
    gaps[0] = count > 0 ? INT64_MAX : 0;
    gaps[1] = count > 0 ? INT64_MIN : 0;
    for (int64_t n = 0; n < count; n++, offset_before = offset, position_before = position) {
        int64_t gap;
        offset = entry_number(data, n, OFFSET_ENTRY_BYTES, 0);
        position = entry_number(data, n, OFFSET_ENTRY_BYTES, 4);
        if (n > 0 && (offset <= offset_before || position <= position_before)) return -1;
        gap = (int64_t)position - position_before;
        if (gap < gaps[0]) gaps[0] = gap;
        if (gap > gaps[1]) gaps[1] = gap;
    }
    gaps[2] = position_before;
    return count;
}

/* The same for a time index; `last_timestamp` is that of the last entry, -1 without one. */
EXPORT int64_t spindle_time_index(const uint8_t *data, int64_t size, int64_t *last_timestamp) {
    int64_t count = size / TIME_ENTRY_BYTES, timestamp, before = -1;
    int32_t offset, offset_before = INT32_MIN;
    while (count > 0) {
        const uint8_t *p = data + (count - 1) * TIME_ENTRY_BYTES;
        if (get64(p) != 0 || get32(p + 8) != 0) break;
        count--;
    }
    for (int64_t n = 0; n < count; n++, before = timestamp, offset_before = offset) {
        timestamp = (int64_t)get64(data + n * TIME_ENTRY_BYTES);
        offset = entry_number(data, n, TIME_ENTRY_BYTES, 8);
        if (timestamp <= before || offset < offset_before) return -1;
    }
    *last_timestamp = before;
    return count;
}

/* Audit the batches of an open segment from `position` on; `buffer` has room for `room` bytes. */
EXPORT int spindle_walk_sound_batches(sound_walk *w, uint8_t *buffer, int64_t room) {
    int64_t read_until = w->position + w->budget_bytes;
    w->is_at_snapshot = w->needed_bytes = 0;
    if (!is_base_offset(w->base_offset)) return UNUSUAL;
    while (w->position < w->size_bytes) {
        int64_t wanted = w->size_bytes - w->position, start = 0, size = 0;
        if (w->position >= read_until || w->packed_count > 0) return PAUSED;
        if (wanted > room) wanted = room;
        if (pread((int)w->file, buffer, (size_t)wanted, (off_t)w->position) != (ssize_t)wanted) return UNUSUAL;
        for (; wanted - start >= HEADER_BYTES; start += size, w->position += size) {
            const uint8_t *p = buffer + start;
            size = (int64_t)(int32_t)get32(p + 8) + LOG_OVERHEAD_BYTES;
            if (p[16] != 2 || size < HEADER_BYTES || size > w->size_bytes - w->position) return UNUSUAL;
            if (size > w->max_batch_bytes || !has_usual_offsets(w, p)) return UNUSUAL;
            if (size > wanted - start) break;
            if (w->producer_count == PRODUCERS || w->stretch_count == STRETCHES) return PAUSED;
            if (w->packed_count == PACKED_BATCHES) return PAUSED;
            if ((int64_t)get64(p) >= w->snapshot_offset) {
                w->is_at_snapshot = 1;
                return PAUSED;
            }
            if (!note_batch(w, p, size, start)) return UNUSUAL;
        }
        if (start == 0) {
            if (wanted < HEADER_BYTES || size <= room) return UNUSUAL;
            w->needed_bytes = size;
            return NEEDS_ROOM;
        }
    }
    return w->packed_count > 0 ? PAUSED : AT_END;
}
