/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections and the ticker. The timeout of libmicrohttpd counts inactivity, so one byte per second outlives it. Here a
 * connection has a deadline that bytes do not move, and the ticker shuts its socket down when that has passed.
 * libmicrohttpd closes the socket after srv_conn_notify, which takes h->mu: the ticker never shuts down another file
 * that has the same number.
 */
#include "server/http/internal.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define GONE_MAX 64 /* clients that left, handled in one tick */
#define TICK_MAX_NS 250000000
#define TICK_MIN_NS 1000000

/*
 * Which local user is at the other end of a TCP connection over loopback. The kernel answers by sock_diag(7): the
 * socket whose addresses and ports are ours the other way round.
 *
 * A socket that its process has closed has no user any more, and the kernel reports 0 for it, which is root. Such a
 * socket also has no inode, so it is refused: else `connect, send, close` would be a way to become root. After the
 * answer our own socket must still be connected: only then no other socket can have taken the same two ends.
 */

/* false: the kernel does not report it, or the socket is closed at the other end. */
static bool find_peer_uid(int fd, uid_t *out)
{
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} own, peer;
	struct {
		struct nlmsghdr head;
		struct inet_diag_req_v2 req;
	} question = {.head = {.nlmsg_len = sizeof(question),
			       .nlmsg_type = SOCK_DIAG_BY_FAMILY,
			       .nlmsg_flags = NLM_F_REQUEST},
		      .req = {.sdiag_protocol = IPPROTO_TCP,
			      .idiag_states = ~0u,
			      .id = {.idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}}}};
	union {
		struct nlmsghdr head;
		char bytes[4096];
	} answer;

	/* The two ends of fd as the socket of the peer has them. */
	struct inet_diag_sockid *id = &question.req.id;
	socklen_t own_len = sizeof(own), peer_len = sizeof(peer);
	if (getsockname(fd, &own.any, &own_len) != 0 || getpeername(fd, &peer.any, &peer_len) != 0 ||
	    own.any.sa_family != peer.any.sa_family)
		return false;
	question.req.sdiag_family = (unsigned char)own.any.sa_family;
	if (own.any.sa_family == AF_INET) {
		id->idiag_sport = peer.v4.sin_port;
		id->idiag_dport = own.v4.sin_port;
		id->idiag_src[0] = peer.v4.sin_addr.s_addr;
		id->idiag_dst[0] = own.v4.sin_addr.s_addr;
	} else if (own.any.sa_family == AF_INET6) {
		id->idiag_sport = peer.v6.sin6_port;
		id->idiag_dport = own.v6.sin6_port;
		memcpy(id->idiag_src, &peer.v6.sin6_addr, sizeof(id->idiag_src));
		memcpy(id->idiag_dst, &own.v6.sin6_addr, sizeof(id->idiag_dst));
	} else {
		return false;
	}

	/* Ask the kernel. */
	struct inet_diag_msg found;
	int netlink = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	if (netlink < 0)
		return false;
	ssize_t n = send(netlink, &question, sizeof(question), 0) == (ssize_t)sizeof(question)
			    ? recv(netlink, &answer, sizeof(answer), 0)
			    : -1;
	close(netlink);
	if (n < (ssize_t)NLMSG_LENGTH(sizeof(found)) || answer.head.nlmsg_type != SOCK_DIAG_BY_FAMILY)
		return false;
	memcpy(&found, NLMSG_DATA(&answer.head), sizeof(found));

	/* Both sockets must be open still. */
	struct tcp_info state;
	socklen_t len = sizeof(state);
	if (found.idiag_inode == 0 || getsockopt(fd, IPPROTO_TCP, TCP_INFO, &state, &len) != 0 ||
	    state.tcpi_state == TCP_CLOSE)
		return false;
	*out = found.idiag_uid;
	return true;
}

static struct srv_conn *conn_new(srv_http *h, struct MHD_Connection *mhd)
{
	const union MHD_ConnectionInfo *fd = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
	struct srv_conn *c = fd != NULL ? calloc(1, sizeof(*c)) : NULL;
	if (c == NULL)
		return NULL;
	c->h = h;
	c->mhd = mhd;
	c->fd = fd->connect_fd;
	atomic_init(&c->deadline_ns, sl__mono_ns(&h->env) + h->header_deadline_ns);
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(c->mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
	const struct sockaddr *sa = info != NULL ? info->client_addr : NULL;
	if (sa != NULL && sa->sa_family == AF_INET)
		inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)sa)->sin_addr, c->address,
			  sizeof(c->address));
	else if (sa != NULL && sa->sa_family == AF_INET6)
		inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr, c->address,
			  sizeof(c->address));
	uid_t uid;
	c->own_user = !h->needs_token && find_peer_uid(c->fd, &uid) && (uid == geteuid() || uid == 0);
	if (h->tls != NULL) {
		const union MHD_ConnectionInfo *tls = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION);
		gnutls_session_set_ptr(tls->tls_session, c);
	}
	atomic_fetch_add(&h->n_connections, 1);
	sl__lock(&h->mu);
	c->next = h->conns;
	if (c->next != NULL)
		c->next->prev = c;
	h->conns = c;
	if (h->n_conns++ == 0)
		srv_ticker_wake(h);
	sl__unlock(&h->mu);
	return c;
}

void srv_conn_notify(void *cls, struct MHD_Connection *mhd, void **socket_ctx, enum MHD_ConnectionNotificationCode code)
{
	if (code == MHD_CONNECTION_NOTIFY_STARTED)
		*socket_ctx = conn_new(cls, mhd);
	else {
		if (*socket_ctx != NULL) {
			/* The connection ends: out of the list before the socket is closed. */
			struct srv_conn *c = *socket_ctx;
			srv_http *h = c->h;
			sl__lock(&h->mu);
			*(c->prev != NULL ? &c->prev->next : &h->conns) = c->next;
			if (c->next != NULL)
				c->next->prev = c->prev;
			h->n_conns--;
			if (c->crowd != NULL)
				srv_gather_leave(c->crowd);
			sl__unlock(&h->mu);
			atomic_fetch_sub(&h->n_connections, 1);
			srv_request_free_spare(c);
			free(c);
		}
	}
}

bool srv_client_left(const struct srv_conn *c)
{
	struct pollfd p = {.fd = c->fd, .events = POLLRDHUP};
	return poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

static void *ticker_main(void *ctx)
{
	srv_http *h = ctx;
	srv_request *gone[GONE_MAX];
	int quiet = 0; /* ticks without a connection: after the second nothing is left to write */
	int64_t period = SL_MIN(SL_MIN(h->header_deadline_ns, h->request_deadline_ns), h->heartbeat_ns) / 4;
	period = SL_MAX(SL_MIN(period, TICK_MAX_NS), TICK_MIN_NS);
	sl__lock(&h->mu);
	while (!h->ticker_end) {
		int64_t now = sl__mono_ns(&h->env);
		/* Cut connections whose deadline has passed; libmicrohttpd then closes them. */
		for (struct srv_conn *c = h->conns; c != NULL; c = c->next)
			if (atomic_load(&c->deadline_ns) <= now) {
				atomic_store(&c->deadline_ns, SL_FOREVER);
				sl_counter_add(h->cut_late, 1);
				shutdown(c->fd, SHUT_RDWR);
			}

		/* Streams, and requests whose client has left: these get a reference until gone was called. */
		size_t n = 0;
		for (srv_request *r = h->held, *next; r != NULL; r = next) {
			next = r->held_next;
			if (r->stream != NULL) {
				srv_stream_tick(r, now);
			} else if (r->gone != NULL && !r->gone_called && n < GONE_MAX &&
				   (atomic_load(&h->stopping) || srv_client_left(r->conn))) {
				r->gone_called = true;
				atomic_fetch_add(&r->refs, 1);
				gone[n++] = r;
			}
		}
		quiet = h->n_conns > 0 ? 0 : quiet + 1;
		sl__unlock(&h->mu);

		/* Without the lock. */
		for (size_t i = 0; i < n; i++) {
			pthread_mutex_lock(&gone[i]->later_mu);
			if ((atomic_load(&gone[i]->state) & R_ANSWERED) == 0)
				gone[i]->gone(gone[i], gone[i]->gone_ctx);
			pthread_mutex_unlock(&gone[i]->later_mu);
			srv_request_unref(gone[i]);
		}
		if (h->access != NULL)
			srv_accesslog_flush(h->access);
		sl__lock(&h->mu);
		if (!h->ticker_end && !h->ticker_again && n < GONE_MAX)
			(void)sl__wait(&h->env, &h->tick, &h->mu, quiet < 2 ? now + period : SL_FOREVER);
		h->ticker_again = false;
	}
	sl__unlock(&h->mu);
	return NULL;
}

/* h->mu held. */
void srv_ticker_wake(srv_http *h)
{
	h->ticker_again = true;
	sl__signal(&h->tick);
}

int srv_ticker_start(srv_http *h, struct sl_err *err)
{
	int rc = sl__thread_start(&h->ticker, "http-ticker", ticker_main, h);
	if (rc != 0)
		return sl__thread_error(err, rc, "ticker", "the HTTP server");
	h->ticker_started = true;
	return 0;
}

void srv_ticker_stop(srv_http *h)
{
	if (!h->ticker_started)
		return;
	sl__lock(&h->mu);
	h->ticker_end = true;
	sl__broadcast(&h->tick);
	sl__unlock(&h->mu);
	pthread_join(h->ticker, NULL);
	h->ticker_started = false;
}

void srv_later(srv_request *r, void (*gone)(srv_request *r, void *ctx), void *ctx)
{
	sl__lock(&r->h->mu);
	r->later = true;
	r->gone = gone;
	r->gone_ctx = ctx;
	sl__unlock(&r->h->mu);
}
