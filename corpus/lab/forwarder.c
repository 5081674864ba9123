/*
 * A wire between two network namespaces: a TAP device in each, and a program that carries frames from one to the other
 * with a delay, a rate, a queue, a loss and a largest packet. For machines whose kernel has no netem.
 *
 *     forwarder CLIENT_NAMESPACE SERVER_NAMESPACE KEY=VALUE...
 *
 * Keys: delay_us (one way), rate_bps, queue_bytes, loss_ppm, seed, mtu_drop (larger IP packets vanish, without ICMP).
 * A prefix "up." or "down." limits a key to one direction: up is from the client. Each namespace gets a device "wire0".
 * Prints "ready" when both exist; prints its counters when it receives SIGTERM. Needs CAP_NET_ADMIN and CAP_SYS_ADMIN.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { FRAME_BYTES = 2048, QUEUE_FRAMES = 32768, ETHERNET_BYTES = 14, ON_THE_WIRE_BYTES = 24 };

struct frame {
	uint64_t leaves_ns;
	int length;
	unsigned char bytes[FRAME_BYTES];
};

struct direction {
	const char *name;
	int from, to;
	uint64_t delay_us, rate_bps, queue_bytes, loss_ppm, mtu_drop, random;
	uint64_t carried, lost, overflowed, too_large, late_ns_max;
	struct frame *queue;
	unsigned head, count;
	uint64_t free_at_ns; /* when the last frame has left the rate limiter */
};

static void fail(const char *what)
{
	fprintf(stderr, "forwarder: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* The frame reaches the far end after it has left the rate limiter and crossed the wire. */
static void arrive(struct direction *d, int length)
{
	uint64_t now = now_ns();
	struct frame *frame = &d->queue[(d->head + d->count) % QUEUE_FRAMES];
	/* Neighbour discovery and the like are not part of the experiment. */
	int is_ip = frame->bytes[12] == 0x08 && frame->bytes[13] == 0x00;

	if (is_ip && d->mtu_drop && (uint64_t)(length - ETHERNET_BYTES) > d->mtu_drop) {
		d->too_large++;
		return;
	}
	if (is_ip && d->loss_ppm && next_random(&d->random) % 1000000 < d->loss_ppm) {
		d->lost++;
		return;
	}
	uint64_t start = d->free_at_ns > now ? d->free_at_ns : now;
	if (d->rate_bps) {
		uint64_t waiting_bytes = (start - now) * d->rate_bps / 8000000000u;
		if (waiting_bytes + (uint64_t)length > d->queue_bytes) {
			d->overflowed++;
			return;
		}
		start += (uint64_t)(length + ON_THE_WIRE_BYTES) * 8000000000u / d->rate_bps;
		d->free_at_ns = start;
	}
	if (d->count == QUEUE_FRAMES) {
		d->overflowed++;
		return;
	}
	frame->length = length;
	frame->leaves_ns = start + d->delay_us * 1000;
	d->count++;
}

static void *carry(void *argument)
{
	struct direction *d = argument;
	struct pollfd readable = { .fd = d->from, .events = POLLIN };

	prctl(PR_SET_TIMERSLACK, 1);
	for (;;) {
		uint64_t now = now_ns();
		while (d->count && d->queue[d->head].leaves_ns <= now) {
			struct frame *frame = &d->queue[d->head];
			uint64_t late = now - frame->leaves_ns;
			if (late > d->late_ns_max)
				d->late_ns_max = late;
			if (write(d->to, frame->bytes, (size_t)frame->length) >= 0)
				d->carried++;
			d->head = (d->head + 1) % QUEUE_FRAMES;
			d->count--;
		}
		struct timespec wait = { 0, 0 };
		if (d->count) {
			now = now_ns();
			uint64_t leaves = d->queue[d->head].leaves_ns;
			uint64_t left = leaves > now ? leaves - now : 0;
			wait.tv_sec = (time_t)(left / 1000000000u);
			wait.tv_nsec = (long)(left % 1000000000u);
		}
		int ready = ppoll(&readable, 1, d->count ? &wait : NULL, NULL);
		if (ready < 0 && errno != EINTR)
			fail("ppoll");
		while (ready > 0) {
			struct frame *frame = &d->queue[(d->head + d->count) % QUEUE_FRAMES];
			ssize_t length = read(d->from, frame->bytes, FRAME_BYTES);
			if (length < ETHERNET_BYTES)
				break;
			arrive(d, (int)length);
		}
	}
	return NULL;
}

static int open_tap(const char *namespace)
{
	char path[256];
	struct ifreq request = { .ifr_flags = IFF_TAP | IFF_NO_PI };

	snprintf(path, sizeof path, "/run/netns/%s", namespace);
	int ns = open(path, O_RDONLY | O_CLOEXEC);
	if (ns < 0 || setns(ns, CLONE_NEWNET))
		fail(path);
	close(ns);
	int tap = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (tap < 0)
		fail("/dev/net/tun");
	strcpy(request.ifr_name, "wire0");
	if (ioctl(tap, TUNSETIFF, &request))
		fail("TUNSETIFF");
	return tap;
}

static void set(struct direction *d, const char *key, uint64_t value)
{
	if (!strcmp(key, "delay_us")) d->delay_us = value;
	else if (!strcmp(key, "rate_bps")) d->rate_bps = value;
	else if (!strcmp(key, "queue_bytes")) d->queue_bytes = value;
	else if (!strcmp(key, "loss_ppm")) d->loss_ppm = value;
	else if (!strcmp(key, "mtu_drop")) d->mtu_drop = value;
	else if (!strcmp(key, "seed")) d->random ^= value * 0x9E3779B97F4A7C15u;
	else {
		fprintf(stderr, "forwarder: unknown key %s\n", key);
		exit(2);
	}
}

int main(int count, char **arguments)
{
	struct direction up = { .name = "up", .queue_bytes = 262144, .random = 0x123456789ABCDEFu };
	struct direction down = { .name = "down", .queue_bytes = 262144, .random = 0xFEDCBA987654321u };
	pthread_t thread;
	sigset_t end;
	int received;

	if (count < 3) {
		fprintf(stderr, "usage: forwarder CLIENT_NAMESPACE SERVER_NAMESPACE KEY=VALUE...\n");
		return 2;
	}
	for (int i = 3; i < count; i++) {
		char *value = strchr(arguments[i], '=');
		if (!value)
			continue;
		*value++ = 0;
		uint64_t number = strtoull(value, NULL, 10);
		if (!strncmp(arguments[i], "up.", 3)) set(&up, arguments[i] + 3, number);
		else if (!strncmp(arguments[i], "down.", 5)) set(&down, arguments[i] + 5, number);
		else set(&up, arguments[i], number), set(&down, arguments[i], number);
	}
	int client = open_tap(arguments[1]), server = open_tap(arguments[2]);
	up.from = down.to = client;
	up.to = down.from = server;
	up.queue = calloc(QUEUE_FRAMES, sizeof *up.queue);
	down.queue = calloc(QUEUE_FRAMES, sizeof *down.queue);
	if (!up.queue || !down.queue)
		fail("memory");
	/* Jitter of the wire would be jitter of the experiment. */
	struct sched_param priority = { .sched_priority = 10 };
	if (sched_setscheduler(0, SCHED_FIFO, &priority))
		fprintf(stderr, "forwarder: no real-time priority: %s\n", strerror(errno));
	sigemptyset(&end);
	sigaddset(&end, SIGTERM);
	sigaddset(&end, SIGINT);
	pthread_sigmask(SIG_BLOCK, &end, NULL);
	if (pthread_create(&thread, NULL, carry, &up) || pthread_create(&thread, NULL, carry, &down))
		fail("thread");
	printf("ready\n");
	fflush(stdout);
	sigwait(&end, &received);
	for (struct direction *d = &up; d; d = d == &up ? &down : NULL)
		printf("%s: carried %lu, lost %lu, overflowed %lu, too_large %lu, latest_us %lu\n", d->name, (unsigned long)d->carried,
		       (unsigned long)d->lost, (unsigned long)d->overflowed, (unsigned long)d->too_large,
		       (unsigned long)(d->late_ns_max / 1000));
	return 0;
}
