/* What ABI 1.0 promises: sizes and places of fields, and values. Nothing here is ever changed: what a later
 * minor version adds is asserted in a file of its own. abi_test.sh compiles it, also against broken headers.
 */
#include <stddef.h>

#include "sluice.h"

/* The first size: a structure may grow at its end, but for sluice_dim. */
#define SIZE(type, bytes) _Static_assert(sizeof(type) >= (bytes), "size of " #type)
#define AT(type, field, offset, bytes)                                             \
  _Static_assert(offsetof(type, field) == (offset), "place of " #type "." #field); \
  _Static_assert(sizeof(((type*)0)->field) == (bytes), "size of " #type "." #field)
#define IS(name, value) _Static_assert((name) == (value), "value of " #name)

SIZE(sluice_program_info, 72);
AT(sluice_program_info, size, 0, 8);
AT(sluice_program_info, name, 8, 8);
AT(sluice_program_info, target, 16, 8);
AT(sluice_program_info, options, 24, 8);
AT(sluice_program_info, graph_hash, 32, 8);
AT(sluice_program_info, fingerprint, 40, 8);
AT(sluice_program_info, ranks, 48, 4);
AT(sluice_program_info, experts, 52, 4);
AT(sluice_program_info, top_k, 56, 4);
AT(sluice_program_info, max_tokens, 60, 4);
AT(sluice_program_info, entry_count, 64, 4);
AT(sluice_program_info, tensor_count, 68, 4);

SIZE(sluice_entry_info, 56);
AT(sluice_entry_info, size, 0, 8);
AT(sluice_entry_info, name, 8, 8);
AT(sluice_entry_info, expert_ids, 16, 8);
AT(sluice_entry_info, routed_as, 24, 8);
AT(sluice_entry_info, tensors, 32, 8);
AT(sluice_entry_info, tensor_count, 40, 4);
AT(sluice_entry_info, saves, 44, 4);
AT(sluice_entry_info, uses_saved, 48, 4);
AT(sluice_entry_info, reserved, 52, 4);

SIZE(sluice_dim, 16);
AT(sluice_dim, extent, 0, 4);
AT(sluice_dim, reserved, 4, 4);
AT(sluice_dim, size, 8, 8);

SIZE(sluice_tensor_info, 56);
AT(sluice_tensor_info, size, 0, 8);
AT(sluice_tensor_info, name, 8, 8);
AT(sluice_tensor_info, shape, 16, 8);
AT(sluice_tensor_info, dims, 24, 8);
AT(sluice_tensor_info, type, 32, 4);
AT(sluice_tensor_info, role, 36, 4);
AT(sluice_tensor_info, dim_count, 40, 4);
AT(sluice_tensor_info, owned, 44, 4);
AT(sluice_tensor_info, accumulates, 48, 4);
AT(sluice_tensor_info, reserved, 52, 4);

SIZE(sluice_job, 32);
AT(sluice_job, size, 0, 8);
AT(sluice_job, name, 8, 8);
AT(sluice_job, rank, 16, 4);
AT(sluice_job, ranks, 20, 4);
AT(sluice_job, timeout_seconds, 24, 8);

SIZE(sluice_workspace_options, 16);
AT(sluice_workspace_options, size, 0, 8);
AT(sluice_workspace_options, threads, 8, 4);
AT(sluice_workspace_options, pinning, 12, 4);

SIZE(sluice_workspace_info, 24);
AT(sluice_workspace_info, size, 0, 8);
AT(sluice_workspace_info, bytes, 8, 8);
AT(sluice_workspace_info, threads, 16, 4);
AT(sluice_workspace_info, reserved, 20, 4);

SIZE(sluice_context_options, 48);
AT(sluice_context_options, size, 0, 8);
AT(sluice_context_options, workspace, 8, 8);
AT(sluice_context_options, threads, 16, 4);
AT(sluice_context_options, pinning, 20, 4);
AT(sluice_context_options, executor, 24, 4);
AT(sluice_context_options, pack_each_step, 28, 4);
AT(sluice_context_options, timeout_seconds, 32, 8);
AT(sluice_context_options, packed_bytes, 40, 8);

SIZE(sluice_tensor, 40);
AT(sluice_tensor, size, 0, 8);
AT(sluice_tensor, type, 8, 4);
AT(sluice_tensor, dim_count, 12, 4);
AT(sluice_tensor, dims, 16, 8);
AT(sluice_tensor, data, 24, 8);
AT(sluice_tensor, flags, 32, 4);
AT(sluice_tensor, reserved, 36, 4);

SIZE(sluice_stats, 80);
AT(sluice_stats, size, 0, 8);
AT(sluice_stats, run_seconds, 8, 8);
AT(sluice_stats, bind_seconds, 16, 8);
AT(sluice_stats, exchange_seconds, 24, 8);
AT(sluice_stats, tasks, 32, 8);
AT(sluice_stats, rows, 40, 8);
AT(sluice_stats, saved_bytes, 48, 8);
AT(sluice_stats, packed_bytes, 56, 8);
AT(sluice_stats, packed_panels, 64, 8);
AT(sluice_stats, unpacked_panels, 72, 8);

_Static_assert(sizeof(sluice_dim) == 16, "sluice_dim lies in arrays");
_Static_assert(SLUICE_ABI_MAJOR == 1, "another major version has another file");

IS(SLUICE_OK, 0);
IS(SLUICE_ERROR_ARGUMENT, 1);
IS(SLUICE_ERROR_FAILED, 2);
IS(SLUICE_ERROR_ABORTED, 3);
IS(SLUICE_ERROR_MEMORY, 4);
IS(SLUICE_ERROR_CANCELLED, 5);
IS(SLUICE_ERROR_INTERNAL, 6);
IS(SLUICE_F32, 0);
IS(SLUICE_BF16, 1);
IS(SLUICE_F16, 2);
IS(SLUICE_I32, 3);
IS(SLUICE_I64, 4);
IS(SLUICE_INPUT, 0);
IS(SLUICE_OUTPUT, 1);
IS(SLUICE_FIXED, 0);
IS(SLUICE_TOKENS, 1);
IS(SLUICE_ROWS, 2);
IS(SLUICE_PAIRS, 3);
IS(SLUICE_EXPERTS, 4);
IS(SLUICE_PIN_IF_ENOUGH, 0);
IS(SLUICE_PIN_NEVER, 1);
IS(SLUICE_PARALLEL, 0);
IS(SLUICE_SERIAL, 1);
IS(SLUICE_CONSTANT, 1);
IS(SLUICE_SAVED_DEFAULT, 0);
IS(SLUICE_SAVED_LAST, 1023);

_Static_assert(sizeof(sluice_status) == 4 && (sluice_status)-1 < 0, "sluice_status is an int32_t");
_Static_assert(sizeof(sluice_type) == 4 && (sluice_type)-1 < 0, "sluice_type is an int32_t");
_Static_assert(sizeof(sluice_role) == 4 && (sluice_role)-1 < 0, "sluice_role is an int32_t");
_Static_assert(sizeof(sluice_extent) == 4 && (sluice_extent)-1 < 0, "sluice_extent is an int32_t");
_Static_assert(sizeof(sluice_pinning) == 4 && (sluice_pinning)-1 < 0, "sluice_pinning is an int32_t");
_Static_assert(sizeof(sluice_executor) == 4 && (sluice_executor)-1 < 0, "sluice_executor is an int32_t");

/* Signatures. */
uint32_t (*const test_sluice_abi_version)(void) = sluice_abi_version;
const char* (*const test_sluice_status_name)(sluice_status status) = sluice_status_name;
const char* (*const test_sluice_last_error)(void) = sluice_last_error;
sluice_status (*const test_sluice_program_load)(const char* path,
                                                sluice_program** program) = sluice_program_load;
sluice_status (*const test_sluice_program_from_memory)(const void* bytes, size_t size,
                                                       sluice_program** program) = sluice_program_from_memory;
void (*const test_sluice_program_free)(sluice_program* program) = sluice_program_free;
sluice_status (*const test_sluice_program_get_info)(const sluice_program* program,
                                                    sluice_program_info* info) = sluice_program_get_info;
sluice_status (*const test_sluice_program_get_entry)(const sluice_program* program, uint32_t index,
                                                     sluice_entry_info* info) = sluice_program_get_entry;
sluice_status (*const test_sluice_program_get_tensor)(const sluice_program* program, uint32_t index,
                                                      sluice_tensor_info* info) = sluice_program_get_tensor;
sluice_status (*const test_sluice_program_find_tensor)(const sluice_program* program, const char* name,
                                                       uint32_t* index) = sluice_program_find_tensor;
sluice_status (*const test_sluice_program_tensor_dims)(const sluice_program* program, uint32_t index,
                                                       int32_t rank, int64_t tokens, int64_t rows,
                                                       int64_t* dims,
                                                       int32_t capacity) = sluice_program_tensor_dims;
int32_t (*const test_sluice_type_bytes)(sluice_type type) = sluice_type_bytes;
sluice_status (*const test_sluice_transport_alone)(sluice_transport** transport) = sluice_transport_alone;
sluice_status (*const test_sluice_transport_threads)(int32_t size, sluice_transport** transports) =
    sluice_transport_threads;
sluice_status (*const test_sluice_transport_join)(const sluice_job* job,
                                                  sluice_transport** transport) = sluice_transport_join;
void (*const test_sluice_transport_free)(sluice_transport* transport) = sluice_transport_free;
int32_t (*const test_sluice_transport_rank)(const sluice_transport* transport) = sluice_transport_rank;
int32_t (*const test_sluice_transport_size)(const sluice_transport* transport) = sluice_transport_size;
sluice_status (*const test_sluice_transport_abort)(sluice_transport* transport,
                                                   const char* message) = sluice_transport_abort;
int32_t (*const test_sluice_transport_is_aborted)(const sluice_transport* transport) =
    sluice_transport_is_aborted;
sluice_status (*const test_sluice_workspace_create)(sluice_transport* transport,
                                                    const sluice_workspace_options* options,
                                                    sluice_workspace** workspace) = sluice_workspace_create;
void (*const test_sluice_workspace_free)(sluice_workspace* workspace) = sluice_workspace_free;
sluice_status (*const test_sluice_workspace_get_info)(
    const sluice_workspace* workspace, sluice_workspace_info* info) = sluice_workspace_get_info;
sluice_status (*const test_sluice_context_create)(sluice_program* program, sluice_transport* transport,
                                                  const sluice_context_options* options,
                                                  sluice_context** context) = sluice_context_create;
void (*const test_sluice_context_free)(sluice_context* context) = sluice_context_free;
const char* (*const test_sluice_context_error)(const sluice_context* context) = sluice_context_error;
sluice_status (*const test_sluice_context_bind)(sluice_context* context, const char* name,
                                                const sluice_tensor* tensor) = sluice_context_bind;
sluice_status (*const test_sluice_context_run)(sluice_context* context, const char* entry,
                                               uint32_t saved) = sluice_context_run;
sluice_status (*const test_sluice_context_output)(sluice_context* context, const char* name,
                                                  sluice_tensor* tensor) = sluice_context_output;
sluice_status (*const test_sluice_context_expert_rows)(sluice_context* context, int32_t* rows,
                                                       int32_t capacity,
                                                       int32_t* count) = sluice_context_expert_rows;
sluice_status (*const test_sluice_context_get_stats)(sluice_context* context,
                                                     sluice_stats* stats) = sluice_context_get_stats;
sluice_status (*const test_sluice_context_trace_start)(sluice_context* context, uint64_t spans_per_worker) =
    sluice_context_trace_start;
sluice_status (*const test_sluice_context_trace_stop)(sluice_context* context) = sluice_context_trace_stop;
sluice_status (*const test_sluice_trace_write)(sluice_context* const* contexts, size_t count,
                                               const char* path) = sluice_trace_write;
sluice_status (*const test_sluice_context_submit)(sluice_context* context, const char* entry, uint32_t saved,
                                                  sluice_step** step) = sluice_context_submit;
sluice_status (*const test_sluice_step_wait)(sluice_step* step) = sluice_step_wait;
sluice_status (*const test_sluice_step_poll)(sluice_step* step, int32_t* done) = sluice_step_poll;
sluice_status (*const test_sluice_step_cancel)(sluice_step* step) = sluice_step_cancel;
const char* (*const test_sluice_step_error)(const sluice_step* step) = sluice_step_error;
void (*const test_sluice_step_free)(sluice_step* step) = sluice_step_free;
