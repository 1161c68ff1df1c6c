#include "front/run/zygote.h"

#include "base/cleanup.h"
#include "wire/isolate.h"
#include "wire/pack.h"

enum { FRAME_MAX = 65536 };

struct keeper *zygote_keep(const struct zygote_options *o, const struct zygote_callbacks *cb) {
    return keeper_create(o->loop, &(struct keeper_options){
                                      .name = "cay-isolate",
                                      .exec_fd = o->exec_fd,
                                      .joins = o->joins,
                                      .njoins = o->njoins,
                                      .max_frame_bytes = FRAME_MAX,
                                      .max_queue_bytes = FRAME_MAX,
                                      .on_start = cb->on_start,
                                      .on_frame = cb->on_frame,
                                      .on_end = cb->on_end,
                                      .ctx = cb->ctx,
                                  });
}

void zygote_configure(struct channel *channel, const struct zygote_options *o, uint32_t flags,
                      const struct buf *plan) {
    _cleanup_(buf) struct buf b;
    buf_init(&b, FRAME_MAX);
    pack_u32(&b, ISOLATE_VERSION);
    pack_u32(&b, flags);
    pack_u32(&b, o->levers);
    pack_u64(&b, o->memory_max_bytes);
    pack_u32(&b, o->cpu_max_s);
    pack_bytes(&b, plan ? plan->data : NULL, plan ? plan->len : 0);
    (void)channel_send(channel,
                       &(struct wire_out){.type = ISOLATE_CONFIG, .pieces = {{b.data, b.len}}});
}
