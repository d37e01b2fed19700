/* Rank 0 of the store: joining and the all-gather.
 *
 * Connections that have not proved themselves are guests: a bounded number, each with its own deadline, all served at
 * once, so that strangers who keep silent delay nobody. A guest that is a rank of another world ends the start for all;
 * a stranger is dropped. What ends the start is told to every rank that had joined, with the status rank 0 reports.
 */
#include <errno.h>
#include <linnet/context.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "store_internal.h"

static const uint64_t guest_ns = (uint64_t)LNT_STORE_HANDSHAKE_MS * 1000000u;

/* State of joining. */
typedef struct door {
    lnt_store_t *store;
    int listener;
    uint32_t joined;
    lnt_store_guest_t guests[LNT_STORE_GUESTS];
} door_t;

/* ---- telling ---- */

static void tell(lnt_store_link_t *link, const lnt_store_failure_t *failure)
{
    const size_t bytes = offsetof(lnt_store_failure_t, text) + strlen(failure->text);

    (void)lnt_store_link_send(link, LNT_STORE_ERROR, failure, bytes, lnt_store_deadline(LNT_STORE_HANDSHAKE_MS));
}

static lnt_status_t fail_all(lnt_store_t *store, const lnt_store_failure_t *failure, const char *cure)
{
    for (uint32_t rank = 1; rank < store->n_ranks; rank++) {
        if (store->links[rank].fd >= 0) {
            tell(&store->links[rank], failure);
        }
    }
    return lnt_error((lnt_status_t)failure->status, cure, "%s", failure->text);
}

/* ---- guests ---- */

/* What a proven hello says must fit this world; otherwise the text for both sides. */
static bool hello_fits(const lnt_store_t *store, const lnt_store_hello_t *hello, lnt_store_failure_t *failure)
{
    char *text = failure->text;

    *failure = (lnt_store_failure_t){.status = LNT_ERR_MISMATCH};
    if (hello->library_version != (uint32_t)LINNET_VERSION) {
        failure->status = LNT_ERR_VERSION;
        snprintf(text, LNT_STORE_TEXT_MAX, "rank %u has linnet version %u, rank 0 has %u", hello->rank,
                 hello->library_version, (uint32_t)LINNET_VERSION);
    } else if (hello->n_ranks != store->n_ranks) {
        snprintf(text, LNT_STORE_TEXT_MAX, "rank %u has WORLD_SIZE %u, rank 0 has %u", hello->rank, hello->n_ranks,
                 store->n_ranks);
    } else if (hello->rank == 0 || hello->rank >= store->n_ranks) {
        snprintf(text, LNT_STORE_TEXT_MAX, "a second process says it is rank %u of %u", hello->rank, store->n_ranks);
    } else if (store->links[hello->rank].fd >= 0) {
        snprintf(text, LNT_STORE_TEXT_MAX, "rank %u was started twice", hello->rank);
    }
    return text[0] == '\0';
}

/* A guest has proved that it belongs here. */
static lnt_status_t judge(door_t *door, lnt_store_guest_t *guest)
{
    lnt_store_failure_t failure;

    if (!hello_fits(door->store, &guest->hello, &failure)) {
        tell(&guest->link, &failure);
        return fail_all(door->store, &failure, "start every rank once, with one WORLD_SIZE and one library");
    }
    door->store->links[guest->hello.rank] = guest->link;
    *guest = (lnt_store_guest_t){.link.fd = -1};
    door->joined++;
    return LNT_OK;
}

static lnt_status_t serve_guest(door_t *door, lnt_store_guest_t *guest)
{
    lnt_status_t status = lnt_store_guest_step(guest, door->store->base_key);

    if (status == LNT_OK) {
        return judge(door, guest);
    }
    if (status == LNT_ERR_VERSION) {
        door->store->other_protocol = guest->hello.protocol;
    }
    if (status < 0) {
        door->store->refused += (status == LNT_ERR_AUTH || guest->greeted);
        lnt_store_link_close(&guest->link);
    }
    return LNT_OK;
}

/* A free place, or that of the guest who came first. */
static lnt_store_guest_t *guest_place(door_t *door)
{
    lnt_store_guest_t *oldest = &door->guests[0];

    for (uint32_t i = 0; i < LNT_STORE_GUESTS; i++) {
        if (door->guests[i].link.fd < 0) {
            return &door->guests[i];
        }
        if (door->guests[i].since_ns < oldest->since_ns) {
            oldest = &door->guests[i];
        }
    }
    lnt_store_link_close(&oldest->link);
    return oldest;
}

/* Nobody there, or gone again, is nothing special; a limit that is reached would wake us for ever. */
static lnt_status_t accept_failed(lnt_store_t *store, int error)
{
    lnt_store_failure_t failure = {.status = LNT_ERR_SYSTEM};

    if (error != EMFILE && error != ENFILE && error != ENOBUFS && error != ENOMEM) {
        return LNT_OK;
    }
    snprintf(failure.text, sizeof(failure.text), "rank 0 cannot accept connections: %s", strerror(error));
    return fail_all(store, &failure, "raise the limit of open files (ulimit -n) on rank 0's host");
}

static lnt_status_t take_guest(door_t *door)
{
    int fd = accept4(door->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    lnt_store_guest_t *guest;

    if (fd < 0) {
        return accept_failed(door->store, errno);
    }
    lnt_store_no_delay(fd);
    guest = guest_place(door);
    *guest = (lnt_store_guest_t){.link = {.fd = fd, .auth = door->store->auth, .server = true}};
    guest->since_ns = lnt_now_ns();
    return serve_guest(door, guest); /* a rank's hello is often there already */
}

/* ---- joining ---- */

static lnt_status_t report_missing(lnt_store_t *store)
{
    lnt_store_failure_t failure = {.status = LNT_ERR_TIMED_OUT};
    char *text = failure.text;
    int n = snprintf(text, sizeof(failure.text), "these ranks did not come within %u ms:", store->timeout_ms);

    for (uint32_t rank = 1; rank < store->n_ranks && n > 0 && n < LNT_STORE_TEXT_MAX - 80; rank++) {
        if (store->links[rank].fd < 0) {
            n += snprintf(text + n, sizeof(failure.text) - (size_t)n, " %u", rank);
        }
    }
    if (store->other_protocol != 0) {
        failure.status = LNT_ERR_VERSION;
        snprintf(text + n, sizeof(failure.text) - (size_t)n, " (somebody speaks protocol %u, rank 0 protocol %u)",
                 store->other_protocol, (unsigned)LNT_STORE_PROTOCOL);
    } else if (store->refused > 0) {
        failure.status = LNT_ERR_AUTH;
        snprintf(text + n, sizeof(failure.text) - (size_t)n, " (%u connections failed authentication)", store->refused);
    }
    return fail_all(store, &failure,
                    "start the missing ranks with the same MASTER_ADDR, MASTER_PORT, LINNET_SECRET and library");
}

/* Waits for the listener and all guests at once, at most until the first deadline. */
static lnt_status_t wait_and_serve(door_t *door, uint64_t deadline_ns)
{
    struct pollfd fds[LNT_STORE_GUESTS + 1] = {{.fd = door->listener, .events = POLLIN}};
    uint64_t now = lnt_now_ns(), until = deadline_ns;

    for (uint32_t i = 0; i < LNT_STORE_GUESTS; i++) {
        const lnt_store_guest_t *guest = &door->guests[i];

        fds[i + 1] = (struct pollfd){.fd = guest->link.fd, .events = POLLIN};
        if (guest->link.fd >= 0 && guest->since_ns + guest_ns < until) {
            until = guest->since_ns + guest_ns;
        }
    }
    if (poll(fds, LNT_STORE_GUESTS + 1, until > now ? (int)((until - now) / 1000000u % 1000000u) + 1 : 0) < 0) {
        return LNT_OK; /* a signal: look again */
    }
    for (uint32_t i = 0; i < LNT_STORE_GUESTS; i++) {
        lnt_store_guest_t *guest = &door->guests[i];

        if (fds[i + 1].revents != 0 && guest->link.fd == fds[i + 1].fd) {
            LNT_TRY(serve_guest(door, guest));
        }
        if (guest->link.fd >= 0 && lnt_now_ns() - guest->since_ns >= guest_ns) {
            lnt_store_link_close(&guest->link);
        }
    }
    return fds[0].revents != 0 ? take_guest(door) : LNT_OK;
}

static lnt_status_t let_in(door_t *door, uint64_t deadline_ns)
{
    while (door->joined < door->store->n_ranks) {
        if (lnt_now_ns() >= deadline_ns) {
            return report_missing(door->store);
        }
        LNT_TRY(wait_and_serve(door, deadline_ns));
    }
    return LNT_OK;
}

lnt_status_t lnt_store_serve_join(lnt_store_t *store, int listener, uint64_t deadline_ns)
{
    door_t *door = lnt_calloc(1, sizeof(*door), "store guests");
    lnt_status_t status;

    if (door == NULL) {
        return LNT_ERR_NO_MEMORY;
    }
    door->store = store;
    door->listener = listener;
    door->joined = 1;
    for (uint32_t i = 0; i < LNT_STORE_GUESTS; i++) {
        door->guests[i].link.fd = -1;
    }
    status = let_in(door, deadline_ns);
    for (uint32_t i = 0; i < LNT_STORE_GUESTS; i++) {
        lnt_store_link_close(&door->guests[i].link);
    }
    lnt_free(door);
    for (uint32_t rank = 1; status == LNT_OK && rank < store->n_ranks; rank++) {
        (void)lnt_store_link_send(&store->links[rank], LNT_STORE_WELCOME, NULL, 0,
                                  lnt_store_deadline(LNT_STORE_HANDSHAKE_MS)); /* the all-gather finds who is lost */
    }
    return status;
}

/* ---- the all-gather ---- */

lnt_status_t lnt_store_serve_allgather(lnt_store_t *store, const void *input, uint8_t *output, size_t bytes)
{
    uint64_t deadline_ns = lnt_store_deadline(store->timeout_ms);
    lnt_store_failure_t failure;

    memcpy(output, input, bytes);
    for (uint32_t rank = 1; rank < store->n_ranks; rank++) {
        uint32_t type;
        size_t got = 0;
        lnt_status_t status =
            lnt_store_link_receive(&store->links[rank], &type, output + rank * bytes, bytes, &got, deadline_ns);

        if (status < 0 || type != LNT_STORE_DATA || got != bytes) {
            failure.status = status < 0 ? status : LNT_ERR_MISMATCH;
            snprintf(failure.text, sizeof(failure.text), "rank %u did not take part in the start-up exchange: %s", rank,
                     status < 0 ? lnt_status_string(status) : "another message size");
            return fail_all(store, &failure, "look at the log of that rank");
        }
    }
    for (uint32_t rank = 1; rank < store->n_ranks; rank++) {
        lnt_status_t status =
            lnt_store_link_send(&store->links[rank], LNT_STORE_DATA, output, bytes * store->n_ranks, deadline_ns);
        if (status < 0) {
            return lnt_error(status, "look at the log of that rank", "rank %u was lost in the start-up exchange", rank);
        }
    }
    return LNT_OK;
}
