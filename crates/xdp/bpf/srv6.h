/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * The program for SRv6 behaviours and encapsulations: the S-rules, in the order of the userspace engine.
 * It is called by the main program, and by itself for the next segment of the same packet.
 *
 * What it changes before it knows that the packet is forwarded is put back for the kernel.
 */
#ifndef RADDLE_SRV6_H
#define RADDLE_SRV6_H

#include "srv6_encap.h"
#include "srv6_route.h"
#include "packet.h"
#include "srv6_endpoint.h"

/* Where the packet that the main program has checked ends. */
inline_always int set_out(struct xdp_md *ctx, struct srv6_ctx *w)
{
	__u32 linear = (void *)(long)ctx->data_end - (void *)(long)ctx->data;
	__u8 *frame = bytes_at(ctx, 0, IP_AT + 20);
	__u64 *words = (__u64 *)frame;

	if (!frame)
		return REASON_TRUNCATED;
	w->packet.at = IP_AT;
	w->changes = 0;
	w->larges = 0;
	w->flow.ether_type = 0;
	w->own = 0;
	w->way = WAY_PLAIN;
	w->ethernet[0] = words[0];
	w->ethernet[1] = words[1];
	if (frame[12] == ETH_P_IP >> 8 && frame[13] == 0) {
		w->packet.ether_type = ETH_P_IP;
		w->packet.end = IP_AT + big16(frame + IP_AT + 2);
	} else {
		w->packet.ether_type = ETH_P_IPV6;
		w->packet.end = IP_AT + 40 + big16(frame + IP_AT + 4);
	}
	w->received = frame_len(ctx, linear, w->packet.end);
	w->length = w->received;
	return 0;
}

/* S8: the frame inside, out of a link. */
inline_always int send_frame(struct xdp_md *ctx, struct srv6_ctx *w, __u32 out, __u32 mtu)
{
	__u32 at = READ_ONCE(w->packet.at), end = READ_ONCE(w->packet.end);
	__u8 *frame;
	int reason;

	frame = bytes_at(ctx, at, ETH_HLEN);
	if (!frame)
		return REASON_DEEP_HEADERS;
	if (big16(frame + 12) < 0x600)
		return REASON_PAYLOAD;
	if (!out || end - at - ETH_HLEN > mtu)
		return REASON_SEGMENT_LINK;
	if (is_split_here(ctx, READ_ONCE(w->length)))
		return REASON_SEVERAL_BUFFERS;
	if (bpf_redirect_map(&out_links, out, XDP_PASS) != XDP_REDIRECT)
		return REASON_REDIRECT_FAILED;
	if (bpf_xdp_adjust_head(ctx, (int)at))
		return DROP | REASON_REDIRECT_FAILED;
	w->sent += 1;
	w->sent_to = out;
	reason = trim(ctx, w, at, end, NO_COUNTERS);
	return reason ? reason : SENT;
}

/* S8.2: the out-link by the VLAN of the frame that was taken out. */
static __noinline int send_by_vlan(struct xdp_md *ctx, struct srv6_ctx *w, const struct segment *s)
{
	__u32 from = 0, to = s->vlans, place = s->template, at = READ_ONCE(w->packet.at), vlan;
	__u8 *frame = bytes_at(ctx, at, ETH_HLEN);

	if (!frame)
		return REASON_DEEP_HEADERS;
	/* As S8.1 has it, first. */
	if (big16(frame + 12) < 0x600)
		return REASON_PAYLOAD;
	if (at + 16 > READ_ONCE(w->packet.end) || big16(frame + 12) != ETH_P_8021Q)
		return REASON_PAYLOAD;
	frame = bytes_at(ctx, at, 16);
	if (!frame)
		return REASON_DEEP_HEADERS;
	vlan = big16(frame + 14) & 0xfff;
	NO_UNROLL for (int i = 0; i < 13 && from < to; i++) {
		__u32 middle = from + (to - from) / 2;
		__u64 entry = template_word(place + middle);

		if ((__u16)entry == vlan)
			return send_frame(ctx, w, entry >> 32, entry >> 16 & 0xffff);
		if ((__u16)entry < vlan)
			from = middle + 1;
		else
			to = middle;
	}
	return REASON_PAYLOAD;
}

inline_always __u32 inner_protocol(__u32 kind)
{
	switch (kind) {
	case SEGMENT_END_DX4:
	case SEGMENT_END_DT4:
		return IPPROTO_IPIP;
	case SEGMENT_END_DX6:
	case SEGMENT_END_DT6:
		return IPPROTO_IPV6;
	case SEGMENT_END_DT46:
		return FIND_LAST;
	default:
		return IPPROTO_ETHERNET_IN_IP;
	}
}

inline_always void set_target(struct srv6_ctx *w, __u32 number, __u32 type)
{
	const struct segment_target *target = target_of(number);
	__u64 high, low;

	if (!target)
		return;
	high = target->high;
	low = target->low;
	w->target_high = high;
	w->target_low = low;
	if (type == TARGET_V6 ? high | low : (__u32)high)
		w->target_type = type;
}

/* S7.2: in which table the packet is looked up. */
inline_always void set_table(struct srv6_ctx *w, const struct segment *s)
{
	int is4 = READ_ONCE(w->packet.ether_type) == ETH_P_IP && w->target_type != TARGET_V6;

	w->table = is4 ? s->table4 : s->table6;
	w->carried_out = 1;
}

/* Carries out the segment: 0 when the packet is to go on by its family. */
inline_always int run_segment(struct xdp_md *ctx, struct srv6_ctx *w)
{
	__u32 number = READ_ONCE(w->segment), done = READ_ONCE(w->done), kind, flavours;
	const struct segment *s;
	__u64 word, index = INDEX(number);
	int reason;

	/* S1 and S2 */
	if (index >= segments_len)
		return REASON_ENCAP;
	s = ELEMENT(segments, const struct segment, index);
	word = *(volatile const __u64 *)s;
	kind = word & 0xff;
	flavours = word >> 16 & 0xff;
	if (kind == SEGMENT_KERNEL) {
		__u32 why = word >> 8 & 0xff;

		w->own |= word >> 24 & SEGMENT_NO_PUNT;
		return why < REASON_COUNT ? why | NEXT_KERNEL << NEXT_SHIFT : REASON_ENCAP;
	}
	if (done >= MAX_SEGMENTS)
		return kind == SEGMENT_TUNNEL_END ? REASON_LOCAL : REASON_SID_CHAIN;
	if (counting) {
		w->numbers[done] = word >> 24 & SEGMENT_HAS_COUNTERS ? number : NO_COUNTERS;
		w->bytes[done] = READ_ONCE(w->packet.end) - READ_ONCE(w->packet.at);
	}
	w->done = done + 1;
	w->own |= word >> 24 & SEGMENT_NO_PUNT;
	w->flags = word >> 24 & 0xff;
	w->target_type = 0;
	if (kind == SEGMENT_TUNNEL_END)
		return done ? REASON_LOCAL : GO_OR(NEXT_UNTUNNEL, REASON_LOCAL);
	if (kind >= SEGMENT_INSERT)
		return GO(NEXT_ENCAP);
	if (READ_ONCE(w->packet.ether_type) != ETH_P_IPV6)
		return REASON_ENCAP;

	if (kind == SEGMENT_END_X || kind == SEGMENT_END_DX6)
		set_target(w, number, TARGET_V6);
	else if (kind == SEGMENT_END_DX4)
		set_target(w, number, TARGET_V4);
	switch (kind) {
	case SEGMENT_END:
	case SEGMENT_END_X:
	case SEGMENT_END_T:
		if (flavours & FLAVOUR_NEXT_CSID) {
			reason = shift_argument(ctx, w, word >> 32 & 0xff, word >> 40 & 0xff);
			if (reason < 0)
				return -reason;
			if (reason)
				break;
		}
		if (flavours)
			return GO(NEXT_FLAVOURS);
		reason = want_srh(ctx, w, FIND_ROUTING);
		if (reason)
			return reason;
		reason = advance(ctx, w);
		if (reason)
			return reason;
		break;
	case SEGMENT_END_DX6:
	case SEGMENT_END_DT6:
	case SEGMENT_END_DX4:
	case SEGMENT_END_DT4:
	case SEGMENT_END_DT46:
	case SEGMENT_END_DX2:
	case SEGMENT_END_DX2V:
		reason = decapsulate(ctx, w, inner_protocol(kind));
		if (reason)
			return reason;
		if (kind == SEGMENT_END_DX2)
			return send_frame(ctx, w, s->out, s->mtu);
		if (kind == SEGMENT_END_DX2V)
			return send_by_vlan(ctx, w, s);
		break;
	case SEGMENT_END_B6:
		reason = want_srh(ctx, w, FIND_ROUTING);
		return reason ? reason : GO(NEXT_ENCAP);
	case SEGMENT_END_B6_ENCAPS:
		return GO(NEXT_FLAVOURS);
	default:
		return REASON_ENCAP;
	}
	set_table(w, s);
	return 0;
}

/* Rule S10, and the programs that go on. */
inline_always int settle(struct xdp_md *ctx, struct scratch *here, int verdict)
{
	struct srv6_ctx *w = &here->srv6;
	__u32 cpu = bpf_get_smp_processor_id(), stripe = cpu * counter_slots, length, reason;
	const struct link_entry *link;
	int action = XDP_DROP;

	if (verdict == REASON_FORWARDED || verdict == SENT)
		return XDP_REDIRECT;
	verdict = FORGET(w->verdict, verdict);
	switch (next_of(verdict)) {
	case NEXT_SEGMENT:
		w->carried_out = 0;
		/* fallthrough */
	case NEXT_ROUTE:
		bpf_tail_call(ctx, &programs, PROGRAM_SEGMENT);
		break;
	case NEXT_ENCAP:
		bpf_tail_call(ctx, &programs, PROGRAM_ENCAP);
		break;
	case NEXT_FLAVOURS:
		bpf_tail_call(ctx, &programs, PROGRAM_FLAVOURS);
		break;
	case NEXT_CHOICE:
		bpf_tail_call(ctx, &programs, PROGRAM_CHOICE);
		break;
	case NEXT_UNTUNNEL:
		bpf_tail_call(ctx, &programs, PROGRAM_UNTUNNEL);
		break;
	default:
		break;
	}
	reason = reason_of(verdict);
	if (!(verdict & DROP)) {
		undo(ctx, w);
		action = put_tags_back(ctx, here, XDP_PASS);
		if (is_drop(reason) || w->own)
			verdict |= DROP;
	}
	length = READ_ONCE(w->received);
	link = link_of(w);
	if (link)
		count_link(stripe, link, verdict, length);
	count(stripe, verdict_slot(verdict), length);
	count_segments(w, cpu, reason == REASON_BLACKHOLE ? 0 : failed_slot(reason));
	return verdict & DROP ? XDP_DROP : action;
}

inline_always struct scratch *scratch_here(void)
{
	__u64 cpu = INDEX(bpf_get_smp_processor_id());

	return cpu < cpus ? ELEMENT(scratch, struct scratch, cpu) : NULL;
}

/* The segment again, in a program that goes on with it. */
inline_always const struct segment *segment_of(struct srv6_ctx *w)
{
	__u64 number = INDEX(READ_ONCE(w->segment));

	return number < segments_len ? ELEMENT(segments, const struct segment, number) : NULL;
}

/* What most packets need, and what comes behind a segment. */
SEC("xdp.frags")
int segment(struct xdp_md *ctx)
{
	struct scratch *here = scratch_here();
	struct srv6_ctx *w;
	int verdict;

	if (!here)
		return XDP_PASS;
	w = &here->srv6;
	if (READ_ONCE(w->carried_out)) {
		verdict = 0;
	} else {
		verdict = READ_ONCE(w->done) ? 0 : set_out(ctx, w);
		if (!verdict)
			verdict = run_segment(ctx, w);
	}
	if (!verdict)
		verdict = READ_ONCE(w->packet.ether_type) == ETH_P_IP ? route4(ctx, here) : route6(ctx, here);
	return settle(ctx, here, verdict);
}

/* Encapsulations and insertions. */
SEC("xdp.frags")
int encap(struct xdp_md *ctx)
{
	struct scratch *here = scratch_here();
	const struct segment *s;
	int verdict = REASON_ENCAP;
	__u32 kind;

	if (!here)
		return XDP_PASS;
	s = segment_of(&here->srv6);
	if (s) {
		kind = *(volatile const __u8 *)s;
		if (kind == SEGMENT_INSERT || kind == SEGMENT_END_B6)
			verdict = insert(ctx, here, s);
		else if (kind == SEGMENT_ENCAPS || kind == SEGMENT_ENCAPS_L2 ||
			 kind == SEGMENT_END_B6_ENCAPS)
			verdict = encapsulate(ctx, here, s);
		if (!verdict) {
			set_table(&here->srv6, s);
			verdict = route6(ctx, here);
		}
	}
	return settle(ctx, here, verdict);
}

/* Steps with flavours. */
SEC("xdp.frags")
int flavours(struct xdp_md *ctx)
{
	struct scratch *here = scratch_here();
	const struct segment *s;
	int verdict = REASON_ENCAP;
	__u64 word;

	if (!here)
		return XDP_PASS;
	s = segment_of(&here->srv6);
	if (s) {
		word = *(volatile const __u64 *)s;
		if ((word & 0xff) == SEGMENT_END_B6_ENCAPS) {
			__u64 others = (__u8)~(FLAVOUR_NEXT_CSID | FLAVOUR_REPLACE_CSID);

			verdict = flavoured_step(ctx, &here->srv6, word & ~(others << 16));
			verdict = verdict ? verdict : GO(NEXT_ENCAP);
		} else {
			verdict = flavoured_step(ctx, &here->srv6, word);
			set_table(&here->srv6, s);
			verdict = verdict ? verdict : GO(NEXT_ROUTE);
		}
	}
	return settle(ctx, here, verdict);
}

/* Groups of several members. */
SEC("xdp.frags")
int choice(struct xdp_md *ctx)
{
	struct scratch *here = scratch_here();

	if (!here)
		return XDP_PASS;
	return settle(ctx, here, choose_and_leave(ctx, here));
}

#endif
