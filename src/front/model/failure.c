/* What a model server says when it fails, for a person: what happened, whether to try again, and
 * nothing that must not be shown. */

#include "base/utf8.h"
#include "front/model/internal.h"
#include "front/model/messages.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { MESSAGE_MAX = 300 };

/* Replaces what must not be shown in a text that came from outside: our own secrets, whatever looks
 * like a key, control characters. */
static void model_failure_scrub(const struct models *m, const char *text, char *out, size_t size) {
    size_t n = 0;
    bool word = false; /* inside a word */
    while (*text && n + 12 < size) {
        size_t skip = 0;
        for (int i = 0; i < SECRET_COUNT; i++) {
            const char *v = m->opt.secrets->values[i];
            size_t len = v ? strlen(v) : 0;
            if (len >= 4 && strncmp(text, v, len) == 0 && len > skip)
                skip = len;
        }
        if (skip == 0 && !word && strncmp(text, "sk-", 3) == 0)
            skip = strcspn(text, " \t\r\n\"',;)}");
        if (skip > 0) {
            memcpy(out + n, "[redacted]", 10);
            n += 10;
            text += skip;
            word = true;
            continue;
        }
        unsigned char c = (unsigned char)*text++;
        out[n++] = c < 0x20 || c == 0x7f ? ' ' : (char)c;
        word = isalnum(c) || c == '-' || c == '_';
    }
    out[n] = 0;
    (void)utf8_mend(out, n);
}

static bool model_failure_has_word(const char *type, const char *const *words) {
    for (; type && *words; words++)
        if (strcmp(type, *words) == 0)
            return true;
    return false;
}

static enum err_code model_failure_code_of(int status, const char *type) {
    static const char *const rate[] = {"rate_limit_error", "rate_limit_exceeded", "tokens",
                                       "requests", NULL};
    static const char *const busy[] = {"overloaded_error", "api_error",           "server_error",
                                       "timeout_error",    "service_unavailable", NULL};
    static const char *const key[] = {"authentication_error", "permission_error", "invalid_api_key",
                                      NULL};
    if (status == 401 || status == 403 || model_failure_has_word(type, key))
        return ERR_UNAUTHORIZED;
    if (status == 429 || model_failure_has_word(type, rate))
        return ERR_RATE;
    if (status == 408 || status == 500 || (status >= 502 && status <= 504) || status >= 520 ||
        model_failure_has_word(type, busy))
        return ERR_UNAVAILABLE;
    if (status == 413 || (type && strcmp(type, "request_too_large") == 0))
        return ERR_TOO_LARGE;
    return ERR_UPSTREAM;
}

int stream_error(struct model_stream *s, int status, const char *type, const char *message,
                 struct err *err) {
    static const char *const final[] = {"insufficient_quota", "billing_error", NULL};
    const char *name = model_provider_name(s->info.provider);
    enum err_code code = model_failure_code_of(status, type);
    char said[MESSAGE_MAX + 16];
    char number[32] = "";
    model_failure_scrub(s->m, message ? message : "", said, sizeof(said));
    if (status > 0)
        (void)snprintf(number, sizeof(number), " (%d)", status);
    s->retryable =
        (code == ERR_RATE || code == ERR_UNAVAILABLE) && !model_failure_has_word(type, final);
    if (s->advice != RETRY_UNSAID)
        s->retryable = s->advice == RETRY_WANTED;
    const char *what = code == ERR_UNAUTHORIZED  ? "does not accept the key"
                       : code == ERR_RATE        ? "asks for fewer requests"
                       : code == ERR_UNAVAILABLE ? "is overloaded or failing"
                       : code == ERR_TOO_LARGE   ? "finds the conversation too long"
                                                 : "refused the request";
    const char *advice = code == ERR_UNAUTHORIZED && s->info.provider == MODEL_ANTHROPIC
                             ? "; check ANTHROPIC_API_KEY"
                         : code == ERR_UNAUTHORIZED ? "; check OPENAI_API_KEY"
                                                    : "";
    return err_set(err, code, "the model server of %s %s%s%s%s%s", name, what, number, advice,
                   *said ? ": " : "", said);
}

/* What an answer that is no event stream says, as well as it can be told. */
void stream_body_error(struct model_stream *s, struct err *err) {
    json_t *body = NULL;
    const char *text = s->error_body.data ? s->error_body.data : "";
    const char *type = NULL;
    const char *message = "";
    if (json_parse(text, s->error_body.len, "the answer", &body, err) == 0) {
        const json_t *error = json_object_get(body, "error");
        if (!json_is_object(error) && !json_is_string(error) && json_is_array(body))
            error = json_object_get(json_array_get(body, 0), "error");
        const json_t *from = json_is_object(error) ? error : body;
        type = messages_str(from, "type");
        if (strcmp(messages_str(from, "code"), "insufficient_quota") == 0)
            type = "insufficient_quota";
        message = json_is_string(error)            ? json_string_value(error)
                  : *messages_str(from, "message") ? messages_str(from, "message")
                  : *messages_str(from, "detail")  ? messages_str(from, "detail")
                                                   : "";
    } else if (s->error_body.len > 0) {
        while (isspace((unsigned char)*text))
            text++;
        message = *text == '<' ? "the answer is a web page; is the base URL right?" : text;
    }
    if (s->status == 200) {
        bool said = json_is_object(json_object_get(body, "error"));
        (void)stream_error(s, 0, type,
                           said || *text == '<' ? message : "the answer is no event stream", err);
        s->retryable = s->retryable || s->error_body.len == 0;
    } else {
        (void)stream_error(s, s->status, type, message, err);
    }
    json_decref(body);
}
