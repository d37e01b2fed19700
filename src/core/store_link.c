/* One connection of the store: bounded reads and writes, messages with keyed hashes, the handshake. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../base/clock.h"
#include "../base/error.h"
#include "store_link.h"

typedef struct message_header {
    uint32_t magic, type;
    uint64_t bytes;
} message_header_t;

/* Waits until the socket is ready; LNT_ERR_TIMED_OUT at the deadline. */
static lnt_status_t wait_ready(int fd, short events, uint64_t deadline_ns)
{
    for (;;) {
        uint64_t now = lnt_now_ns();
        struct pollfd poll_fd = {.fd = fd, .events = events};
        int n;

        if (now >= deadline_ns) {
            return LNT_ERR_TIMED_OUT;
        }
        n = poll(&poll_fd, 1, (int)((deadline_ns - now) / 1000000 % 1000) + 1);
        if (n > 0) {
            return LNT_OK;
        }
        if (n < 0 && errno != EINTR) {
            return LNT_ERR_SYSTEM;
        }
    }
}

static bool would_block(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

static lnt_status_t write_all(int fd, const void *data, size_t bytes, uint64_t deadline_ns)
{
    const uint8_t *at = data;

    while (bytes > 0) {
        ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n > 0) {
            at += n;
            bytes -= (size_t)n;
            continue;
        }
        if (!would_block()) {
            return LNT_ERR_PEER_LOST;
        }
        lnt_status_t status = wait_ready(fd, POLLOUT, deadline_ns);
        if (status < 0) {
            return status;
        }
    }
    return LNT_OK;
}

static lnt_status_t read_all(int fd, void *data, size_t bytes, uint64_t deadline_ns)
{
    uint8_t *at = data;

    while (bytes > 0) {
        ssize_t n = recv(fd, at, bytes, MSG_DONTWAIT);

        if (n > 0) {
            at += n;
            bytes -= (size_t)n;
            continue;
        }
        if (n == 0 || !would_block()) {
            return LNT_ERR_PEER_LOST;
        }
        lnt_status_t status = wait_ready(fd, POLLIN, deadline_ns);
        if (status < 0) {
            return status;
        }
    }
    return LNT_OK;
}

/* Keyed hash of one message: direction and counter make every message of a session different. */
static void message_mac(const lnt_store_link_t *link, bool from_server, uint64_t counter,
                        const message_header_t *header, const void *data, uint8_t mac[LNT_AUTH_BYTES])
{
    uint8_t prefix[sizeof(uint64_t) + sizeof(*header) + 1];

    memcpy(prefix, &counter, sizeof(counter));
    memcpy(prefix + sizeof(counter), header, sizeof(*header));
    prefix[sizeof(prefix) - 1] = from_server;
    link->auth->mac(link->key, prefix, sizeof(prefix), data, (size_t)header->bytes, mac);
}

lnt_status_t lnt_store_link_send(lnt_store_link_t *link, uint32_t type, const void *data, size_t bytes,
                                 uint64_t deadline_ns)
{
    message_header_t header = {.magic = LNT_STORE_MAGIC, .type = type, .bytes = bytes};
    uint8_t mac[LNT_AUTH_BYTES] = {0};
    lnt_status_t status;

    if (link->auth != NULL) {
        message_mac(link, link->server, link->sent, &header, data, mac);
    }
    link->sent++;
    status = write_all(link->fd, &header, sizeof(header), deadline_ns);
    if (status == LNT_OK) {
        status = write_all(link->fd, mac, sizeof(mac), deadline_ns);
    }
    return status == LNT_OK ? write_all(link->fd, data, bytes, deadline_ns) : status;
}

lnt_status_t lnt_store_link_receive(lnt_store_link_t *link, uint32_t *type_p, void *data, size_t room, size_t *bytes_p,
                                    uint64_t deadline_ns)
{
    message_header_t header;
    uint8_t mac[LNT_AUTH_BYTES], expected[LNT_AUTH_BYTES];
    lnt_status_t status = read_all(link->fd, &header, sizeof(header), deadline_ns);

    if (status == LNT_OK) {
        status = read_all(link->fd, mac, sizeof(mac), deadline_ns);
    }
    if (status < 0) {
        return status;
    }
    if (header.magic != LNT_STORE_MAGIC || header.bytes > room) {
        return LNT_ERR_CORRUPT;
    }
    status = read_all(link->fd, data, (size_t)header.bytes, deadline_ns);
    if (status < 0) {
        return status;
    }
    if (link->auth != NULL) {
        message_mac(link, !link->server, link->received, &header, data, expected);
        if (!link->auth->equal(mac, expected, sizeof(mac))) {
            return LNT_ERR_AUTH;
        }
    }
    link->received++;
    *type_p = header.type;
    *bytes_p = (size_t)header.bytes;
    return LNT_OK;
}

void lnt_store_link_close(lnt_store_link_t *link)
{
    if (link->fd >= 0) {
        close(link->fd);
        link->fd = -1;
    }
    if (link->auth != NULL) {
        link->auth->wipe(link->key, sizeof(link->key));
    }
}

/* Proof of one side: role, hello (with the client's nonce) and the server's nonce under the secret's key. */
static void make_proof(const lnt_store_link_t *link, const uint8_t *base_key, const char *role,
                       const lnt_store_hello_t *hello, const uint8_t *server_nonce, uint8_t proof[LNT_AUTH_BYTES])
{
    uint8_t text[sizeof(*hello) + LNT_STORE_NONCE];

    memset(proof, 0, LNT_AUTH_BYTES);
    if (link->auth == NULL) {
        return;
    }
    memcpy(text, hello, sizeof(*hello));
    memcpy(text + sizeof(*hello), server_nonce, LNT_STORE_NONCE);
    link->auth->mac(base_key, role, strlen(role), text, sizeof(text), proof);
}

static bool proof_holds(const lnt_store_link_t *link, const uint8_t *base_key, const char *role,
                        const lnt_store_hello_t *hello, const uint8_t *server_nonce,
                        const uint8_t proof[LNT_AUTH_BYTES])
{
    uint8_t expected[LNT_AUTH_BYTES];

    if (link->auth == NULL) {
        return true;
    }
    make_proof(link, base_key, role, hello, server_nonce, expected);
    return link->auth->equal(proof, expected, sizeof(expected));
}

/* What the server says to a hello, before anything is proved. */
static lnt_status_t check_reply(const lnt_store_reply_t *reply, uint32_t *other_p)
{
    if (reply->magic != LNT_STORE_MAGIC) {
        return LNT_ERR_CORRUPT;
    }
    if (reply->protocol != LNT_STORE_PROTOCOL) {
        *other_p = reply->protocol;
        return LNT_ERR_VERSION;
    }
    return (reply->verdict == LNT_OK) ? LNT_OK : LNT_ERR_AUTH;
}

/* The first eight bytes decide whether there is more to read. */
static lnt_status_t read_reply(int fd, lnt_store_reply_t *reply, uint32_t *other_p, uint64_t deadline_ns)
{
    const size_t head = offsetof(lnt_store_reply_t, verdict);

    *reply = (lnt_store_reply_t){.verdict = LNT_OK};
    LNT_TRY(read_all(fd, reply, head, deadline_ns));
    LNT_TRY(check_reply(reply, other_p));
    LNT_TRY(read_all(fd, (uint8_t *)reply + head, sizeof(*reply) - head, deadline_ns));
    return check_reply(reply, other_p);
}

lnt_status_t lnt_store_link_handshake(lnt_store_link_t *link, const uint8_t *base_key, lnt_store_hello_t *hello,
                                      uint32_t *other_p, uint64_t deadline_ns)
{
    lnt_store_reply_t reply;
    uint8_t proof[LNT_AUTH_BYTES];

    hello->magic = LNT_STORE_MAGIC;
    hello->protocol = LNT_STORE_PROTOCOL;
    hello->has_secret = link->auth != NULL;
    if (getrandom(hello->nonce, sizeof(hello->nonce), 0) != (ssize_t)sizeof(hello->nonce)) {
        return LNT_ERR_SYSTEM;
    }
    LNT_TRY(write_all(link->fd, hello, sizeof(*hello), deadline_ns));
    LNT_TRY(read_reply(link->fd, &reply, other_p, deadline_ns));
    if (!proof_holds(link, base_key, "server", hello, reply.nonce, reply.proof)) {
        return LNT_ERR_AUTH;
    }
    make_proof(link, base_key, "client", hello, reply.nonce, proof);
    make_proof(link, base_key, "session", hello, reply.nonce, link->key);
    return write_all(link->fd, proof, sizeof(proof), deadline_ns);
}

/* ---- the server's side ---- */

/* What is there now of `bytes`. */
static lnt_status_t read_some(int fd, void *data, size_t bytes, size_t *have_p)
{
    ssize_t n = recv(fd, (uint8_t *)data + *have_p, bytes - *have_p, MSG_DONTWAIT);

    if (n > 0) {
        *have_p += (size_t)n;
    } else if (n == 0 || !would_block()) {
        return LNT_ERR_PEER_LOST;
    }
    return (*have_p == bytes) ? LNT_OK : LNT_IN_PROGRESS;
}

/* The empty buffer of a fresh socket takes the whole reply, or the guest is none of ours. */
static lnt_status_t answer(lnt_store_guest_t *guest, const uint8_t *base_key, lnt_status_t verdict)
{
    lnt_store_reply_t reply = {.magic = LNT_STORE_MAGIC, .protocol = LNT_STORE_PROTOCOL, .verdict = (int32_t)verdict};

    if (getrandom(guest->nonce, sizeof(guest->nonce), 0) != (ssize_t)sizeof(guest->nonce)) {
        return LNT_ERR_SYSTEM;
    }
    if (verdict == LNT_OK) {
        memcpy(reply.nonce, guest->nonce, sizeof(reply.nonce));
        make_proof(&guest->link, base_key, "server", &guest->hello, reply.nonce, reply.proof);
        make_proof(&guest->link, base_key, "session", &guest->hello, reply.nonce, guest->link.key);
    }
    if (send(guest->link.fd, &reply, sizeof(reply), MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)sizeof(reply)) {
        return LNT_ERR_PEER_LOST;
    }
    guest->greeted = (verdict == LNT_OK);
    guest->have = 0;
    return guest->greeted ? LNT_IN_PROGRESS : verdict;
}

static lnt_status_t read_hello(lnt_store_guest_t *guest, const uint8_t *base_key)
{
    const lnt_store_hello_t *hello = &guest->hello;
    lnt_status_t status = read_some(guest->link.fd, &guest->hello, sizeof(guest->hello), &guest->have);

    if (status < 0) {
        return status;
    }
    if (guest->have >= sizeof(hello->magic) && hello->magic != LNT_STORE_MAGIC) {
        return LNT_ERR_CORRUPT;
    }
    if (guest->have >= offsetof(lnt_store_hello_t, rank) && hello->protocol != LNT_STORE_PROTOCOL) {
        return answer(guest, base_key, LNT_ERR_VERSION);
    }
    if (status != LNT_OK) {
        return status;
    }
    return answer(guest, base_key, (hello->has_secret != 0) == (guest->link.auth != NULL) ? LNT_OK : LNT_ERR_AUTH);
}

lnt_status_t lnt_store_guest_step(lnt_store_guest_t *guest, const uint8_t *base_key)
{
    lnt_status_t status;

    if (!guest->greeted) {
        return read_hello(guest, base_key);
    }
    status = read_some(guest->link.fd, guest->proof, sizeof(guest->proof), &guest->have);
    if (status == LNT_OK && !proof_holds(&guest->link, base_key, "client", &guest->hello, guest->nonce, guest->proof)) {
        status = LNT_ERR_AUTH;
    }
    return status;
}
