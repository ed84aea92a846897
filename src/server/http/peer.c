/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which local user is at the other end of a TCP connection over loopback. The kernel answers by sock_diag(7): the
 * socket whose addresses and ports are ours the other way round.
 *
 * A socket that its process has closed has no user any more, and the kernel reports 0 for it, which is root. Such a
 * socket also has no inode, so it is refused: else `connect, send, close` would be a way to become root. After the
 * answer our own socket must still be connected: only then no other socket can have taken the same two ends.
 */
#include "server/http/internal.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The two ends of fd as the peer's socket has them. */
static bool peer_ends(int fd, struct inet_diag_req_v2 *req)
{
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} own, peer;
	socklen_t own_len = sizeof(own), peer_len = sizeof(peer);
	if (getsockname(fd, &own.any, &own_len) != 0 || getpeername(fd, &peer.any, &peer_len) != 0 ||
	    own.any.sa_family != peer.any.sa_family)
		return false;
	req->sdiag_family = (unsigned char)own.any.sa_family;
	if (own.any.sa_family == AF_INET) {
		req->id.idiag_sport = peer.v4.sin_port;
		req->id.idiag_dport = own.v4.sin_port;
		req->id.idiag_src[0] = peer.v4.sin_addr.s_addr;
		req->id.idiag_dst[0] = own.v4.sin_addr.s_addr;
		return true;
	}
	req->id.idiag_sport = peer.v6.sin6_port;
	req->id.idiag_dport = own.v6.sin6_port;
	memcpy(req->id.idiag_src, &peer.v6.sin6_addr, sizeof(req->id.idiag_src));
	memcpy(req->id.idiag_dst, &own.v6.sin6_addr, sizeof(req->id.idiag_dst));
	return own.any.sa_family == AF_INET6;
}

static bool ask_kernel(const struct inet_diag_req_v2 *req, struct inet_diag_msg *out)
{
	struct {
		struct nlmsghdr head;
		struct inet_diag_req_v2 req;
	} question = {.head = {.nlmsg_len = sizeof(question),
			       .nlmsg_type = SOCK_DIAG_BY_FAMILY,
			       .nlmsg_flags = NLM_F_REQUEST},
		      .req = *req};
	union {
		struct nlmsghdr head;
		char bytes[4096];
	} answer;
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	if (fd < 0)
		return false;
	ssize_t n = send(fd, &question, sizeof(question), 0) == (ssize_t)sizeof(question)
			    ? recv(fd, &answer, sizeof(answer), 0)
			    : -1;
	close(fd);
	if (n < (ssize_t)NLMSG_LENGTH(sizeof(*out)) || answer.head.nlmsg_type != SOCK_DIAG_BY_FAMILY)
		return false;
	memcpy(out, NLMSG_DATA(&answer.head), sizeof(*out));
	return true;
}

bool srv_peer_uid(int fd, uid_t *out)
{
	struct inet_diag_req_v2 req = {
		.sdiag_protocol = IPPROTO_TCP,
		.idiag_states = ~0u,
		.id = {.idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}},
	};
	struct inet_diag_msg found;
	struct tcp_info own;
	socklen_t n = sizeof(own);
	if (!peer_ends(fd, &req) || !ask_kernel(&req, &found) || found.idiag_inode == 0)
		return false;
	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &own, &n) != 0 || own.tcpi_state == TCP_CLOSE)
		return false;
	*out = found.idiag_uid;
	return true;
}
