#include "base/cleanup.h"
#include "base/mem.h"
#include "front/sandbox/sandboxes.h"
#include "loop/later.h"

#include <stdlib.h>
#include <string.h>

/* It may be gone before the answer comes: it is known by its id. */
struct sandbox_change {
    struct sandboxes *all;
    char id[ID_SIZE];
    sandbox_changed cb; /* NULL: nobody waits */
    void *ctx;
    bool pause;
    struct network_ask network;
    json_t *shown; /* of the network */
    struct later later;
};

static struct sandbox_change *new_change(struct sandbox *s, sandbox_changed cb, void *ctx) {
    struct sandbox_change *c = xcalloc(1, sizeof(*c));
    *c = (struct sandbox_change){.all = s->all, .cb = cb, .ctx = ctx};
    memcpy(c->id, s->id, sizeof(c->id));
    return c;
}

static void sandbox_change_tell(struct sandbox_change *c, const struct err *err) {
    if (c->cb)
        c->cb(c->ctx, err);
    network_ask_finish(&c->network);
    json_decref(c->shown);
    free(c);
}

static void tell_later(void *ctx) {
    sandbox_change_tell(ctx, NULL);
}

static struct sandbox_change *sandbox_change_wait_for(struct sandbox_change *c,
                                                      const struct sandbox_call *call,
                                                      struct err *err) {
    if (call)
        return c;
    (void)err_set(err, ERR_UNAVAILABLE, "the sandbox takes no requests now");
    free(c);
    return NULL;
}

void sandbox_change_leave(struct sandbox_change *c) {
    c->cb = NULL;
}

static void sandbox_change_on_paused(void *ctx, struct sandbox_reply *reply,
                                     const struct err *err) {
    struct sandbox_change *c = ctx;
    struct sandbox *s = sandboxes_find(c->all, c->id);
    (void)reply;
    bool runs = c->pause == (err != NULL);
    if (s && s->state != SANDBOX_ENDING && s->state != (runs ? SANDBOX_RUNNING : SANDBOX_PAUSED))
        sandbox_move(s, runs ? SANDBOX_RUNNING : SANDBOX_PAUSED);
    if (s && !err)
        sandbox_save(s);
    sandbox_change_tell(c, err);
}

struct sandbox_change *sandbox_pause(struct sandbox *s, bool pause, sandbox_changed cb, void *ctx,
                                     struct err *err) {
    if (pause && s->snapshots > 0) { /* which is made inside, and would wait */
        (void)err_set(err, ERR_CONFLICT, "a snapshot of it is being made: pause it after that");
        return NULL;
    }
    struct sandbox_change *c = new_change(s, cb, ctx);
    c->pause = pause;
    if (s->state == (pause ? SANDBOX_PAUSED : SANDBOX_RUNNING)) {
        later_post(sandboxes_later(s->all), &c->later, tell_later, c);
        return c;
    }
    if (!pause)
        return sandbox_change_wait_for(c, sandbox_box_resume(s->box, sandbox_change_on_paused, c),
                                       err);
    const struct sandbox_call *call = sandbox_box_pause(s->box, sandbox_change_on_paused, c);
    if (call) /* from here on nothing is sent to it that it could not answer */
        sandbox_move(s, SANDBOX_PAUSED);
    return sandbox_change_wait_for(c, call, err);
}

static void sandbox_change_on_network(void *ctx, const struct err *err) {
    struct sandbox_change *c = ctx;
    struct sandbox *s = sandboxes_find(c->all, c->id);
    if (!err && s) {
        network_ask_finish(&s->network);
        s->network = c->network;
        c->network = (struct network_ask){0};
        (void)json_object_set(s->doc, "network", c->shown);
        sandbox_save(s);
    }
    sandbox_change_tell(c, err);
}

struct sandbox_change *sandbox_set_network(struct sandbox *s, const struct sandbox_network *network,
                                           sandbox_changed cb, void *ctx, struct err *err) {
    struct network *all = sandboxes_network(s->all);
    struct egress_policy policy = {0};
    if (network_resolve(all, network->ask, network->grants, &policy, err) < 0)
        return NULL;
    for (size_t i = 0; i < network->nroutes; i++)
        network_add_route(all, &policy, &network->routes[i]);
    struct sandbox_change *c = new_change(s, cb, ctx);
    network_ask_copy(network->ask, &c->network);
    c->shown = network_ask_show(network->ask);
    if (network->injected)
        (void)json_object_set(c->shown, "injected", (json_t *)(uintptr_t)network->injected);
    if (s->line) {
        network_line_set(s->line, &policy, sandbox_change_on_network, c);
        return c;
    }
    /* Without a network nothing can be asked for, and nothing is what it has. */
    egress_policy_finish(&policy);
    later_post(sandboxes_later(s->all), &c->later, tell_later, c);
    return c;
}

static void sandbox_change_on_measured(void *ctx, struct sandbox_reply *reply,
                                       const struct err *err) {
    struct sandbox_change *c = ctx;
    struct sandbox *s = sandboxes_find(c->all, c->id);
    if (!err && s)
        s->stats = reply->used;
    sandbox_change_tell(c, NULL);
}

struct sandbox_change *sandbox_measure(struct sandbox *s, sandbox_changed cb, void *ctx,
                                       struct err *err) {
    struct sandbox_change *c = new_change(s, cb, ctx);
    return sandbox_change_wait_for(c, sandbox_box_stats(s->box, sandbox_change_on_measured, c),
                                   err);
}
