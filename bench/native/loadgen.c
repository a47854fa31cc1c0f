/* Closed-loop load generator for echo servers, over TCP, TLS, unix sockets or UDP.
 *
 * One thread, one epoll set. Every connection keeps `depth` messages under way and sends the next
 * one when an answer is complete. By default the thread spins (epoll_wait with timeout 0): a client
 * that sleeps has its wake-up charged to the server's send(). `--sleep` blocks instead.
 *
 * With `--churn` each request is a connection of its own: connect, handshake, one message there and
 * back, goodbye from both ends; one after the other.
 *
 * Talks to the harness on stdin and stdout: connects, runs the warm-up, waits until every answer is
 * in, prints {"phase": "warm", ...}, waits for one line, runs the measured phase, waits until every
 * answer is in again, prints {"phase": "done", ...}, and closes its connections when stdin ends. So
 * the server is idle at both ends of the measured phase, and counters read there belong to exactly
 * the requests reported here.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#ifdef LOADGEN_TLS /* needs the headers of OpenSSL */
#include <openssl/ssl.h>
#else
typedef void SSL;
#endif

#define NS_PER_S 1000000000ull
#define NS_PER_MS 1000000ull
#define STALL_NS (10 * NS_PER_S) /* no byte for this long: the server hangs */
#define EVENTS_MAX 1024
#define RECEIVE_BYTES (256 * 1024)

/* Log-linear histogram: 128 steps per power of two, so a percentile is off by less than 0.8 %. */
#define STEP_BITS 7
#define STEPS (1u << STEP_BITS)
#define BUCKETS ((64 - STEP_BITS + 1) * STEPS)

struct options {
    const char *target;
    const char *congestion;
    int connections;
    int cpu;
    bool sleeps;
    bool tls;
    bool churns;
    bool udp;
    size_t size_bytes;
    unsigned depth;
    double warmup_s;
    double seconds;
    uint64_t requests; /* 0: run for `seconds` */
};

struct connection {
    int fd;                   /* -1 once it failed */
    SSL *ssl;                 /* NULL without TLS */
    bool wants_out;           /* EPOLLOUT is in its interest */
    uint64_t requested_bytes; /* given to the connection to send */
    uint64_t sent_bytes;
    uint64_t received_bytes;
    uint64_t *started_ns; /* ring of `depth` start times, oldest at `oldest` */
    unsigned oldest;
    unsigned in_flight;
};

struct generator {
    struct options options;
    int epoll_fd;
    struct connection *connections;
    char *pattern; /* the message depth + 1 times: any slice of the stream lies in one piece */
    char *received;
    char congestion[16]; /* as the kernel names it; empty for unix sockets */
    uint64_t buckets[BUCKETS];
    uint64_t worst_ns;
    uint64_t started;  /* requests of this phase */
    uint64_t done;     /* answers of this phase */
    uint64_t limit;    /* requests allowed in this phase */
    bool stopping;     /* no new requests: the phase is over */
    unsigned in_flight;
    uint64_t errors;
};

static _Noreturn void die(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("loadgen: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static void *allocate(size_t count, size_t each_bytes) {
    void *memory = calloc(count, each_bytes);
    if (memory == NULL)
        die("out of memory");
    return memory;
}

static unsigned bucket_of(uint64_t value) {
    if (value < STEPS)
        return (unsigned)value;
    unsigned shift = 63u - (unsigned)__builtin_clzll(value) - STEP_BITS;
    return (shift + 1) * STEPS + (unsigned)(value >> shift) - STEPS;
}

static double bucket_middle(unsigned bucket) {
    if (bucket < STEPS)
        return bucket;
    unsigned shift = bucket / STEPS - 1;
    uint64_t low = (uint64_t)(STEPS + bucket % STEPS) << shift;
    return (double)low + (double)(1ull << shift) / 2;
}

static void record(struct generator *g, uint64_t latency_ns) {
    g->buckets[bucket_of(latency_ns)]++;
    if (latency_ns > g->worst_ns)
        g->worst_ns = latency_ns;
}

static double percentile_us(const struct generator *g, double part) {
    uint64_t wanted = (uint64_t)(part * (double)g->done), seen = 0;
    for (unsigned bucket = 0; bucket < BUCKETS; bucket++) {
        seen += g->buckets[bucket];
        if (seen > wanted)
            return bucket_middle(bucket) / 1000;
    }
    return (double)g->worst_ns / 1000;
}

static void fail(struct generator *g, struct connection *c, const char *why) {
    fprintf(stderr, "loadgen: connection %d: %s\n", (int)(c - g->connections), why);
    close(c->fd);
    c->fd = -1;
    g->errors++;
    g->in_flight -= c->in_flight;
    c->in_flight = 0;
}

static void set_interest(struct generator *g, struct connection *c, bool wants_out) {
    struct epoll_event event = {.events = EPOLLIN | (wants_out ? EPOLLOUT : 0), .data.ptr = c};
    if (c->wants_out == wants_out)
        return;
    c->wants_out = wants_out;
    if (epoll_ctl(g->epoll_fd, EPOLL_CTL_MOD, c->fd, &event) != 0)
        die("epoll_ctl: %s", strerror(errno));
}

#ifdef LOADGEN_TLS
static SSL_CTX *tls_context(void) {
    static SSL_CTX *context;
    if (context != NULL)
        return context;
    context = SSL_CTX_new(TLS_client_method());
    if (context == NULL || !SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION))
        die("no TLS 1.3 in this OpenSSL");
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_read_ahead(context, 1); /* one recv for as many records as there are */
    SSL_CTX_set_default_read_buffer_len(context, RECEIVE_BYTES);
    return context;
}

static void start_tls(struct connection *c) {
    c->ssl = SSL_new(tls_context());
    if (c->ssl == NULL || !SSL_set_fd(c->ssl, c->fd) || SSL_connect(c->ssl) != 1)
        die("the TLS handshake failed");
}

static ssize_t tls_result(struct connection *c, int n) {
    int error = SSL_get_error(c->ssl, n);
    if (n > 0 || error == SSL_ERROR_ZERO_RETURN)
        return n > 0 ? n : 0;
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE)
        errno = EAGAIN;
    else if (errno == 0 || errno == EAGAIN)
        errno = EPROTO;
    return -1;
}

static ssize_t put(struct connection *c, const void *from, size_t n) {
    return c->ssl ? tls_result(c, SSL_write(c->ssl, from, (int)n))
                  : send(c->fd, from, n, MSG_NOSIGNAL);
}

static ssize_t get(struct connection *c, void *to, size_t room) {
    return c->ssl ? tls_result(c, SSL_read(c->ssl, to, (int)room)) : recv(c->fd, to, room, 0);
}

static void say_goodbye(struct connection *c) {
    if (c->ssl != NULL)
        SSL_shutdown(c->ssl);
    shutdown(c->fd, SHUT_WR);
}

static void forget(struct connection *c) {
    SSL_free(c->ssl);
    c->ssl = NULL;
    close(c->fd);
}

static bool holds_more(const struct connection *c) {
    return c->ssl != NULL && c->fd >= 0 && SSL_has_pending(c->ssl);
}
#else
static void start_tls(struct connection *c) {
    (void)c;
    die("built without TLS");
}

static ssize_t put(struct connection *c, const void *from, size_t n) {
    return send(c->fd, from, n, MSG_NOSIGNAL);
}

static ssize_t get(struct connection *c, void *to, size_t room) {
    return recv(c->fd, to, room, 0);
}

static void say_goodbye(struct connection *c) {
    shutdown(c->fd, SHUT_WR);
}

static void forget(struct connection *c) {
    close(c->fd);
}

static bool holds_more(const struct connection *c) {
    (void)c;
    return false;
}
#endif

static void flush(struct generator *g, struct connection *c) {
    size_t size_bytes = g->options.size_bytes;
    while (c->sent_bytes < c->requested_bytes) {
        const char *from = g->pattern + c->sent_bytes % size_bytes;
        ssize_t n = put(c, from, c->requested_bytes - c->sent_bytes);
        if (n < 0 && errno == EAGAIN) {
            set_interest(g, c, true);
            return;
        }
        if (n < 0) {
            fail(g, c, strerror(errno));
            return;
        }
        c->sent_bytes += (uint64_t)n;
    }
    set_interest(g, c, false);
}

static void fill(struct generator *g, struct connection *c, uint64_t at_ns) {
    unsigned depth = g->options.depth;
    while (!g->stopping && c->in_flight < depth && g->started < g->limit) {
        c->started_ns[(c->oldest + c->in_flight) % depth] = at_ns;
        c->requested_bytes += g->options.size_bytes;
        c->in_flight++;
        g->in_flight++;
        g->started++;
    }
    flush(g, c);
}

static bool is_echo(const struct generator *g, const struct connection *c, size_t n) {
    size_t checked = 0, size_bytes = g->options.size_bytes;
    if (c->received_bytes + n > c->sent_bytes)
        return false;
    while (checked < n) {
        size_t offset = (c->received_bytes + checked) % size_bytes;
        size_t span = size_bytes - offset < n - checked ? size_bytes - offset : n - checked;
        if (memcmp(g->received + checked, g->pattern + offset, span) != 0)
            return false;
        checked += span;
    }
    return true;
}

static void complete(struct generator *g, struct connection *c, size_t n) {
    uint64_t at_ns = now_ns(), size_bytes = g->options.size_bytes;
    uint64_t answers = (c->received_bytes + n) / size_bytes - c->received_bytes / size_bytes;
    c->received_bytes += n;
    for (; answers > 0; answers--) {
        record(g, at_ns - c->started_ns[c->oldest]);
        c->oldest = (c->oldest + 1) % g->options.depth;
        c->in_flight--;
        g->in_flight--;
        g->done++;
    }
    fill(g, c, at_ns);
}

static void read_once(struct generator *g, struct connection *c) {
    ssize_t n = get(c, g->received, RECEIVE_BYTES);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n < 0)
        fail(g, c, strerror(errno));
    else if (n == 0)
        fail(g, c, "closed by the server");
    else if (!is_echo(g, c, (size_t)n))
        fail(g, c, "the bytes that came back are not the bytes sent");
    else
        complete(g, c, (size_t)n);
}

static void on_readable(struct generator *g, struct connection *c) {
    uint64_t before;
    do { /* what OpenSSL has read ahead wakes nobody */
        before = c->received_bytes;
        read_once(g, c);
    } while (holds_more(c) && c->received_bytes > before);
}

static void set_congestion(int fd, const char *name) {
    /* Before connect(): a connection that begins under BBR stays paced when switched over. */
    if (name != NULL && setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, strlen(name)) != 0)
        die("congestion control %s: %s", name, strerror(errno));
}

static int connect_unix(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (strlen(path) >= sizeof address.sun_path)
        die("the socket path is too long: %s", path);
    strcpy(address.sun_path, path);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        die("connect to %s: %s", path, strerror(errno));
    return fd;
}

static int connect_inet(const char *target, const char *congestion, bool udp) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    const char *colon = strrchr(target, ':');
    char host[64] = "";
    int on = 1, fd = socket(AF_INET, (udp ? SOCK_DGRAM : SOCK_STREAM) | SOCK_CLOEXEC, 0);
    if (colon == NULL || (size_t)(colon - target) >= sizeof host)
        die("the target is neither HOST:PORT nor unix:PATH: %s", target);
    memcpy(host, target, (size_t)(colon - target));
    address.sin_port = htons((uint16_t)atoi(colon + 1));
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1)
        die("not an IPv4 address: %s", host);
    if (fd < 0)
        die("socket: %s", strerror(errno));
    if (!udp) {
        set_congestion(fd, congestion);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        die("connect to %s: %s", target, strerror(errno));
    return fd;
}

static void connect_to_server(const struct generator *g, struct connection *c) {
    const char *target = g->options.target;
    c->fd = strncmp(target, "unix:", 5) == 0 ? connect_unix(target + 5)
                                             : connect_inet(target, g->options.congestion, g->options.udp);
    if (g->options.tls)
        start_tls(c);
}

static void open_connection(struct generator *g, struct connection *c) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    connect_to_server(g, c);
    c->started_ns = allocate(g->options.depth, sizeof *c->started_ns);
    if (fcntl(c->fd, F_SETFL, O_NONBLOCK) != 0)
        die("fcntl: %s", strerror(errno));
    if (epoll_ctl(g->epoll_fd, EPOLL_CTL_ADD, c->fd, &event) != 0)
        die("epoll_ctl: %s", strerror(errno));
}

static void set_up(struct generator *g) {
    size_t size_bytes = g->options.size_bytes, copies = g->options.depth + 1;
    g->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    g->pattern = allocate(copies, size_bytes);
    g->received = allocate(1, RECEIVE_BYTES);
    for (size_t i = 0; i < copies * size_bytes; i++)
        g->pattern[i] = (char)(' ' + i % size_bytes * 31 % 95);
    for (size_t i = 1; i <= copies; i++)
        g->pattern[i * size_bytes - 1] = '\n'; /* so that a line server can serve it too */
    g->connections = allocate((size_t)g->options.connections, sizeof *g->connections);
    for (int i = 0; i < g->options.connections; i++)
        open_connection(g, &g->connections[i]);
    socklen_t room = sizeof g->congestion;
    if (strncmp(g->options.target, "unix:", 5) != 0 && !g->options.udp)
        getsockopt(g->connections[0].fd, IPPROTO_TCP, TCP_CONGESTION, g->congestion, &room);
}

static int wait_ms(const struct generator *g, uint64_t now, uint64_t end_ns) {
    if (!g->options.sleeps)
        return 0;
    if (g->stopping || end_ns <= now)
        return (int)(STALL_NS / NS_PER_MS);
    uint64_t left_ns = end_ns - now < STALL_NS ? end_ns - now : STALL_NS;
    return (int)((left_ns + NS_PER_MS - 1) / NS_PER_MS);
}

static void serve_events(struct generator *g, const struct epoll_event *events, int count) {
    for (int i = 0; i < count; i++) {
        struct connection *c = events[i].data.ptr;
        if (c->fd >= 0 && events[i].events & EPOLLOUT)
            flush(g, c);
        if (c->fd >= 0 && events[i].events & ~(uint32_t)EPOLLOUT)
            on_readable(g, c);
    }
}

static void begin_phase(struct generator *g, uint64_t limit) {
    memset(g->buckets, 0, sizeof g->buckets);
    g->worst_ns = g->started = g->done = 0;
    g->limit = limit;
    g->stopping = false;
    for (int i = 0; i < g->options.connections; i++)
        if (g->connections[i].fd >= 0)
            fill(g, &g->connections[i], now_ns());
}

/* Runs until the time or the number of requests is used up and every answer is in. */
static double run_phase(struct generator *g, double seconds, uint64_t requests) {
    struct epoll_event events[EVENTS_MAX];
    uint64_t begin_ns = now_ns(), last_ns = begin_ns, now = begin_ns;
    uint64_t end_ns = requests ? UINT64_MAX : begin_ns + (uint64_t)(seconds * NS_PER_S);
    begin_phase(g, requests ? requests : UINT64_MAX);
    while (g->in_flight > 0) {
        int count = epoll_wait(g->epoll_fd, events, EVENTS_MAX, wait_ms(g, now, end_ns));
        if (count < 0 && errno != EINTR)
            die("epoll_wait: %s", strerror(errno));
        now = now_ns();
        if (count > 0)
            last_ns = now;
        else if (now - last_ns >= STALL_NS)
            die("no answer for %d s, %u under way", (int)(STALL_NS / NS_PER_S), g->in_flight);
        g->stopping = now >= end_ns;
        serve_events(g, events, count);
    }
    return (double)(now_ns() - begin_ns) / NS_PER_S;
}

static bool exchange(struct generator *g, struct connection *c) {
    size_t size_bytes = g->options.size_bytes, received = 0;
    if (put(c, g->pattern, size_bytes) != (ssize_t)size_bytes)
        return false;
    while (received < size_bytes) {
        ssize_t n = get(c, g->received + received, RECEIVE_BYTES - received);
        if (n <= 0)
            return false;
        received += (size_t)n;
    }
    say_goodbye(c);
    return get(c, g->received, RECEIVE_BYTES) == 0;
}

static double run_churn(struct generator *g, double seconds, uint64_t requests) {
    uint64_t begin_ns = now_ns(), end_ns = begin_ns + (uint64_t)(seconds * NS_PER_S);
    begin_phase(g, 0);
    while (g->errors == 0 && (requests ? g->done < requests : now_ns() < end_ns)) {
        struct connection c = {.fd = -1};
        uint64_t started_ns = now_ns();
        connect_to_server(g, &c);
        if (!exchange(g, &c))
            fail(g, &g->connections[0], "a short connection went wrong");
        forget(&c);
        record(g, now_ns() - started_ns);
        g->done++;
    }
    return (double)(now_ns() - begin_ns) / NS_PER_S;
}

static double run(struct generator *g, double seconds, uint64_t requests) {
    return g->options.churns ? run_churn(g, seconds, requests) : run_phase(g, seconds, requests);
}

static void report_warm(const struct generator *g) {
    printf("{\"phase\": \"warm\", \"requests\": %llu, \"congestion\": \"%.15s\"}\n",
           (unsigned long long)g->done, g->congestion);
    fflush(stdout);
}

static void report_done(const struct generator *g, double seconds) {
    printf("{\"phase\": \"done\", \"requests\": %llu, \"seconds\": %.6f, \"p50_us\": %.3f, "
           "\"p99_us\": %.3f, \"p999_us\": %.3f, \"max_us\": %.3f, \"errors\": %llu}\n",
           (unsigned long long)g->done, seconds, percentile_us(g, 0.5), percentile_us(g, 0.99),
           percentile_us(g, 0.999), (double)g->worst_ns / 1000, (unsigned long long)g->errors);
    fflush(stdout);
}

static const char USAGE[] =
    "usage: loadgen --target HOST:PORT|unix:PATH [--connections N] [--size BYTES] [--depth N]\n"
    "               [--warmup S] [--seconds S | --requests N] [--cpu N] [--congestion NAME]\n"
    "               [--sleep] [--tls] [--churn] [--udp]";

static struct options parse(int argc, char **argv) {
    static const struct option known[] = {
        {"target", required_argument, NULL, 't'},   {"connections", required_argument, NULL, 'c'},
        {"size", required_argument, NULL, 'b'},     {"depth", required_argument, NULL, 'd'},
        {"warmup", required_argument, NULL, 'w'},   {"seconds", required_argument, NULL, 's'},
        {"requests", required_argument, NULL, 'n'}, {"cpu", required_argument, NULL, 'u'},
        {"congestion", required_argument, NULL, 'g'}, {"sleep", no_argument, NULL, 'z'},
        {"tls", no_argument, NULL, 'l'},            {"churn", no_argument, NULL, 'r'},
        {"udp", no_argument, NULL, 'p'},
        {NULL, 0, NULL, 0},
    };
    struct options o = {.connections = 1, .cpu = -1, .size_bytes = 1024, .depth = 1, .seconds = 1};
    for (int key; (key = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        switch (key) {
        case 't': o.target = optarg; break;
        case 'c': o.connections = atoi(optarg); break;
        case 'b': o.size_bytes = strtoull(optarg, NULL, 10); break;
        case 'd': o.depth = (unsigned)atoi(optarg); break;
        case 'w': o.warmup_s = atof(optarg); break;
        case 's': o.seconds = atof(optarg); break;
        case 'n': o.requests = strtoull(optarg, NULL, 10); break;
        case 'u': o.cpu = atoi(optarg); break;
        case 'g': o.congestion = optarg; break;
        case 'z': o.sleeps = true; break;
        case 'l': o.tls = true; break;
        case 'r': o.churns = true; break;
        case 'p': o.udp = true; break;
        default: die("%s", USAGE);
        }
    }
    if (o.target == NULL || o.connections < 1 || o.size_bytes < 1 || o.depth < 1)
        die("%s", USAGE);
    return o;
}

static void pin(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        die("pin to CPU %d: %s", cpu, strerror(errno));
}

int main(int argc, char **argv) {
    static struct generator generator;
    char line[16];
    generator.options = parse(argc, argv);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a load without its harness has no purpose */
    if (generator.options.cpu >= 0)
        pin(generator.options.cpu);
    set_up(&generator);
    if (generator.options.warmup_s > 0)
        run(&generator, generator.options.warmup_s, 0);
    if (generator.errors > 0)
        return 1;
    report_warm(&generator);
    if (fgets(line, sizeof line, stdin) == NULL)
        return 1;
    double seconds = run(&generator, generator.options.seconds, generator.options.requests);
    report_done(&generator, seconds);
    /* The connections stay open until the harness has read the server's counters. */
    while (fgets(line, sizeof line, stdin) != NULL)
        continue;
    return generator.errors > 0;
}
