#pragma once
/* The endpoints: one thin file per family, each with one function that adds its routes. */

#include "front/front.h"

void api_health_routes(struct front *f);
void api_status_routes(struct front *f);
void api_runs_routes(struct front *f);
/* Answers with the job's events after a number as they come, or (stream false) with its record when
 * it has ended. */
void api_follow(struct front *f, struct http_req *req, const char *id, int64_t after, bool stream);
void api_code_routes(struct front *f);
void api_run_routes(struct front *f);
void api_agents_routes(struct front *f);
void api_sandboxes_routes(struct front *f);
void api_ports_routes(struct front *f);
void api_execs_routes(struct front *f);
void api_files_routes(struct front *f);
void api_snapshots_routes(struct front *f);
/* Takes requests for PORT-SANDBOX.localhost; false: it is none. */
bool api_port(struct http_req *req, struct front *f);
/* The handler of requests for NAME.localhost. */
void api_guest(struct http_req *req, void *ctx);
