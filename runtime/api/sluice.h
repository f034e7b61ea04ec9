/* SPDX-License-Identifier: Apache-2.0 */
/* The C interface of Sluice: load a program, make a context for each rank, bind tensors, run entries.
 *
 *   sluice_program* program;
 *   sluice_transport* alone;
 *   sluice_context* context;
 *   if (sluice_program_load("layer.slp", &program) != SLUICE_OK) return puts(sluice_last_error());
 *   sluice_transport_alone(&alone);
 *   sluice_context_create(program, alone, NULL, &context);
 *   sluice_tensor x = {.size = sizeof x, .type = SLUICE_BF16, .dim_count = 2, .dims = dims, .data = memory};
 *   sluice_context_bind(context, "x", &x);                            ... and so on for every tensor
 *   sluice_context_run(context, "forward", SLUICE_SAVED_DEFAULT);
 *
 * C11 and C++. docs/EMBEDDING.md explains it, examples/embed.c is a whole program.
 *
 * ABI. A library of version M.n runs programs that were compiled against M.n or older; only functions, values
 * of enums and fields at the end of structures are added. Structures begin with their size, which the caller
 * sets to sizeof: fields beyond it are neither read nor written. In structures of options 0 is always the
 * default.
 *
 * Errors. A function that can fail returns a sluice_status, and never crashes for a null pointer. The
 * message (where, what was found, what was expected) is sluice_last_error() in the calling thread and, for
 * calls on a context or step, also the error of that handle. Out parameters are written only on success;
 * otherwise handles are set to NULL. Nothing throws, logs, exits or installs a signal handler. Strings are
 * UTF-8, as in the program.
 *
 * Ownership. Each handle is freed once, by its own function, in any order: objects that others still need
 * live on. Freeing NULL does nothing. Tensors belong to the caller, and must live while they are bound.
 *
 * Threads. "any": any number of threads may call at once. "one": one thread at a time, counting the handle's
 * other functions. Different handles are independent. In a forked child, calls on handles of the parent are
 * errors, and freeing them does nothing; only programs, and the numbers and messages that handles have, can
 * be read.
 */
#ifndef SLUICE_RUNTIME_API_SLUICE_H
#define SLUICE_RUNTIME_API_SLUICE_H

#include <stddef.h>
#include <stdint.h>

#define SLUICE_ABI_MAJOR 1
#define SLUICE_ABI_MINOR 3
#define SLUICE_ABI_VERSION (SLUICE_ABI_MAJOR * 65536 + SLUICE_ABI_MINOR)

#if defined(__GNUC__)
#define SLUICE_API __attribute__((visibility("default")))
#else
#define SLUICE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* --- Versions, status, messages; all: any thread */

typedef int32_t sluice_status;
enum {
  SLUICE_OK = 0,
  SLUICE_ERROR_ARGUMENT = 1,  /* a null pointer, a structure without size, a value that no enum has */
  SLUICE_ERROR_FAILED = 2,    /* the message has the reason; the handles stay usable */
  SLUICE_ERROR_ABORTED = 3,   /* the ranks of the transport cannot continue: every later run on it fails */
  SLUICE_ERROR_MEMORY = 4,    /* out of memory */
  SLUICE_ERROR_CANCELLED = 5, /* of a step: it was cancelled before it began */
  SLUICE_ERROR_INTERNAL = 6   /* a defect of Sluice; please report the message */
};

/* SLUICE_ABI_VERSION of the library. */
SLUICE_API uint32_t sluice_abi_version(void);
/* "aborted"; "unknown" for other numbers. Static. */
SLUICE_API const char* sluice_status_name(sluice_status status);
/* The message of the last failed call of this thread, "" if there is none. Valid until the next failure. */
SLUICE_API const char* sluice_last_error(void);

/* --- Program: immutable; all: any thread */

typedef struct sluice_program sluice_program;

/* Reads and verifies a file of sluicec. */
SLUICE_API sluice_status sluice_program_load(const char* path, sluice_program** program);
/* The same from the bytes of such a file, which are copied. */
SLUICE_API sluice_status sluice_program_from_memory(const void* bytes, size_t size, sluice_program** program);
SLUICE_API void sluice_program_free(sluice_program* program);

typedef struct sluice_program_info {
  size_t size;
  const char* name; /* strings: until the program is freed */
  const char* target;
  const char* options;
  uint64_t graph_hash;
  uint64_t fingerprint; /* equal for equal programs */
  int32_t ranks;
  int32_t experts; /* of all ranks */
  int32_t top_k;
  int32_t max_tokens; /* of one rank */
  uint32_t entry_count;
  uint32_t tensor_count; /* inputs and outputs */
} sluice_program_info;
SLUICE_API sluice_status sluice_program_get_info(const sluice_program* program, sluice_program_info* info);

typedef struct sluice_entry_info {
  size_t size;
  const char* name;
  const char* expert_ids;  /* the tensor that routes it, or NULL: then it uses the routing of ... */
  const char* routed_as;   /* ... this entry or, where that is NULL too, sends every token to every expert */
  const uint32_t* tensors; /* the inputs and outputs that it reads or writes, ascending */
  uint32_t tensor_count;
  int32_t saves;      /* 1: it fills a saved set */
  int32_t uses_saved; /* 1: it reads a saved set, which another entry must fill first */
  int32_t reserved;
} sluice_entry_info;
/* index < entry_count */
SLUICE_API sluice_status sluice_program_get_entry(const sluice_program* program, uint32_t index,
                                                  sluice_entry_info* info);

typedef int32_t sluice_type;
enum {
  SLUICE_F32 = 0,
  SLUICE_BF16 = 1,
  SLUICE_F16 = 2,
  SLUICE_I32 = 3,
  SLUICE_I64 = 4,
  SLUICE_I8 = 5,
  SLUICE_U8 = 6,
  SLUICE_F8_E4M3 = 7,
  SLUICE_F8_E8M0 = 8
};

typedef int32_t sluice_role;
enum { SLUICE_INPUT = 0, SLUICE_OUTPUT = 1 };

typedef int32_t sluice_extent;
enum {
  SLUICE_FIXED = 0,  /* a number */
  SLUICE_TOKENS = 1, /* T: tokens of this rank, 0 to max_tokens, the same in all tensors of a run */
  SLUICE_ROWS = 2,   /* R: rows that this rank received; known after the run */
  SLUICE_PAIRS = 3,  /* P: (token, k) pairs of this rank whose expert id is not -1 */
  SLUICE_EXPERTS = 4 /* E: experts of this rank, where ranks own different numbers */
};

/* Its size is frozen, because it is used in arrays. */
typedef struct sluice_dim {
  sluice_extent extent;
  int32_t reserved;
  int64_t size; /* SLUICE_FIXED only, else 0 */
} sluice_dim;

typedef struct sluice_tensor_info {
  size_t size;
  const char* name;
  const char* shape;      /* "[T, 64]" */
  const sluice_dim* dims; /* outermost first */
  sluice_type type;
  sluice_role role;
  int32_t dim_count;
  int32_t owned;       /* 1: an output in the context's memory: cannot be bound, is read after a run */
  int32_t accumulates; /* 1: an output that a run adds to */
  int32_t reserved;
} sluice_tensor_info;
/* index < tensor_count */
SLUICE_API sluice_status sluice_program_get_tensor(const sluice_program* program, uint32_t index,
                                                   sluice_tensor_info* info);
SLUICE_API sluice_status sluice_program_find_tensor(const sluice_program* program, const char* name,
                                                    uint32_t* index);
/* The dimensions at `rank` with these numbers of tokens and rows, into dims[0 .. dim_count-1]. */
SLUICE_API sluice_status sluice_program_tensor_dims(const sluice_program* program, uint32_t index,
                                                    int32_t rank, int64_t tokens, int64_t rows, int64_t* dims,
                                                    int32_t capacity);
/* Bytes of an element; 0 for a value that is not a type. */
SLUICE_API int32_t sluice_type_bytes(sluice_type type);

/* --- Transport: one rank's connection to the others; all: any thread */

typedef struct sluice_transport sluice_transport;

/* A transport with one rank. */
SLUICE_API sluice_status sluice_transport_alone(sluice_transport** transport);
/* Ranks that are threads of this process: `size` handles, one per rank, each freed on its own. 1 to 4096. */
SLUICE_API sluice_status sluice_transport_threads(int32_t size, sluice_transport** transports);

typedef struct sluice_job {
  size_t size;
  const char* name; /* 1 to 64 bytes; the same at all ranks of the job, and of no other job of this user */
  int32_t rank;
  int32_t ranks;          /* at most 240 */
  double timeout_seconds; /* for all ranks to join; 0: 30 */
} sluice_job;
/* Ranks that are processes of this machine, over shared memory. Collective: every rank calls it, and it
   waits for all. (MPI is not in this library.) */
SLUICE_API sluice_status sluice_transport_join(const sluice_job* job, sluice_transport** transport);
/* The rank leaves the job in good order with the last handle that uses the transport. */
SLUICE_API void sluice_transport_free(sluice_transport* transport);

SLUICE_API int32_t sluice_transport_rank(const sluice_transport* transport); /* -1: NULL */
SLUICE_API int32_t sluice_transport_size(const sluice_transport* transport); /* 0: NULL */
/* Ends the runs of all ranks for good, with this message: for a rank that cannot take part any more. */
SLUICE_API sluice_status sluice_transport_abort(sluice_transport* transport, const char* message);
/* 1 if the ranks cannot continue, or this process is a forked child, which cannot use the transport. */
SLUICE_API int32_t sluice_transport_is_aborted(const sluice_transport* transport);

/* --- Workspace: worker threads and memory that contexts of one rank use in turn; all: any thread */

typedef int32_t sluice_pinning;
enum {
  SLUICE_PIN_IF_ENOUGH = 0, /* one worker per core, if ranks have enough and others left some */
  SLUICE_PIN_NEVER = 1
};

typedef struct sluice_workspace sluice_workspace;
typedef struct sluice_workspace_options {
  size_t size;
  int32_t threads; /* workers of this rank; 0: one per core of its share */
  sluice_pinning pinning;
  /* What runs the tasks: NULL or "cpu": CPU threads; "cuda" or "cuda:N": a GPU of compute capability 9.0, for
     a transport with one rank. `threads` and `pinning` then do not matter. Since 1.3. */
  const char* device;
} sluice_workspace_options;
/* options NULL: all defaults. */
SLUICE_API sluice_status sluice_workspace_create(sluice_transport* transport,
                                                 const sluice_workspace_options* options,
                                                 sluice_workspace** workspace);
SLUICE_API void sluice_workspace_free(sluice_workspace* workspace);

typedef struct sluice_workspace_info {
  size_t size;
  int64_t bytes; /* the most that a step has committed so far: never shrinks */
  int32_t threads;
  int32_t reserved;
} sluice_workspace_info;
SLUICE_API sluice_status sluice_workspace_get_info(const sluice_workspace* workspace,
                                                   sluice_workspace_info* info);

/* --- Context: one rank's side of a program; all: one thread */

typedef struct sluice_context sluice_context;

typedef int32_t sluice_executor;
enum {
  SLUICE_PARALLEL = 0, /* `threads` workers */
  SLUICE_SERIAL = 1    /* all tasks in the calling thread, in a fixed order; the same bits */
};

typedef struct sluice_context_options {
  size_t size;
  sluice_workspace* workspace; /* of the same transport; NULL: its own, from the next two */
  int32_t threads;
  sluice_pinning pinning;
  sluice_executor executor;
  int32_t pack_each_step; /* has no effect: ordinary weights are packed in each task */
  double timeout_seconds; /* time limit of a wait for one event; 0: 30 */
  int64_t packed_bytes;   /* limit of packed weights at this rank; 0: no limit, -1: none */
  const char* device;     /* as in sluice_workspace_options, without a workspace. Since 1.3. */
} sluice_context_options;
/* Collective: every rank makes the same contexts in the same order. Options may differ. NULL: defaults. */
SLUICE_API sluice_status sluice_context_create(sluice_program* program, sluice_transport* transport,
                                               const sluice_context_options* options,
                                               sluice_context** context);
/* Waits for the context's steps; cancel them first to avoid the wait. */
SLUICE_API void sluice_context_free(sluice_context* context);

/* The message of the last failed call on this context, "" if there is none; valid until the next call on it.
 */
SLUICE_API const char* sluice_context_error(const sluice_context* context);

enum {
  SLUICE_CONSTANT = 1 /* a weight whose content stays until it is bound again: packed for the kernels once */
};

/* A contiguous row-major tensor in the caller's memory. */
typedef struct sluice_tensor {
  size_t size;
  sluice_type type;
  int32_t dim_count;
  const int64_t* dims;
  void* data;     /* at a multiple of the type's size; inputs are only read; NULL where there is no element */
  uint32_t flags; /* 0 or SLUICE_CONSTANT */
  uint32_t reserved;
} sluice_tensor;
/* Binds an input or output by name, for this and all later steps. The memory must stay at the same place
   until the tensor is bound again or the context is freed, and all steps requested before that have ended. If
   bind fails, the tensor is no longer bound: runs that need it fail, at all ranks, with the same message. */
SLUICE_API sluice_status sluice_context_bind(sluice_context* context, const char* name,
                                             const sluice_tensor* tensor);

/* Returns where the rows of an output are to be written, which needs room for all of them without gaps, at a
   multiple of the type's size. Called once per step that writes them, when their number is known, by a thread
   of the context. NULL fails the step at all ranks, and their next steps match again, except for 0 rows. */
typedef void* (*sluice_row_memory)(void* user, int64_t rows);
/* Has the rows of an output written to memory of the caller instead of the context's, where
   sluice_context_output finds them. Fails for rows that other ranks write, such as rows of a dispatch.
   `memory` NULL: the context's memory again. Since 1.2. */
SLUICE_API sluice_status sluice_context_bind_rows(sluice_context* context, const char* name,
                                                  sluice_row_memory memory, void* user);

/* The caller's stream for steps that are requested from now on: a cudaStream_t, with a GPU as device. NULL:
   none (the default stream is cudaStreamLegacy). A step then begins after what was enqueued in the stream
   before sluice_context_run or _submit, and what is enqueued in it after _run or sluice_step_wait has
   returned begins after the step. The stream must live until the step has ended. Fails for CPU threads, and
   for a stream that is being captured into a graph, for which runs are refused, too. Since 1.3. */
SLUICE_API sluice_status sluice_context_set_stream(sluice_context* context, void* stream);

/* What a forward keeps for its backward: the number of a set, 0 to SLUICE_SAVED_LAST. Sets are made when they
   are first used, so several forwards may come before their backwards. */
enum { SLUICE_SAVED_DEFAULT = 0, SLUICE_SAVED_LAST = 1023 };

/* Runs one entry and waits for its end. Collective: all ranks request the same steps in the same order. After
   it returns, bound memory is no longer touched; outputs of a failed step are undefined. Any error in this
   call or in a rank's bound tensors (no such entry, not bound, ids out of range) fails this step at all
   ranks: at others as SLUICE_ERROR_FAILED, with "rank N: " and the message; their next steps match again. An
   error that ends the work of all, such as a lost rank or a wait past the limit, is SLUICE_ERROR_ABORTED. */
SLUICE_API sluice_status sluice_context_run(sluice_context* context, const char* entry, uint32_t saved);
/* Replaces sluice_context_run for a caller that finds itself that it cannot take part in the step, for
   example because it has no input: the step fails at all other ranks with "rank N: " and the message, and
   their next steps match again. `saved` is the set that the step would have used. Collective, and waits like
   a run; does nothing with one rank. Since 1.1. */
SLUICE_API sluice_status sluice_context_refuse(sluice_context* context, uint32_t saved, const char* message);

/* A rows output (sluice_tensor_info.owned) of the last run, which the context owns. `tensor` gets type, dims
   and data, which are valid until the next step of the workspace. */
SLUICE_API sluice_status sluice_context_output(sluice_context* context, const char* name,
                                               sluice_tensor* tensor);

/* The rows of each expert of this rank in the last run, in the order of rows outputs, into rows[0 ..
   count-1]. `capacity` must have room for all experts. No experts before the first run. */
SLUICE_API sluice_status sluice_context_expert_rows(sluice_context* context, int32_t* rows, int32_t capacity,
                                                    int32_t* count);

typedef struct sluice_stats {
  size_t size;
  double run_seconds; /* of the whole last run */
  double bind_seconds;
  double exchange_seconds; /* the part of bind until the counts of all ranks have arrived */
  int64_t tasks;
  int64_t rows;            /* R */
  int64_t saved_bytes;     /* of all saved sets so far */
  int64_t packed_bytes;    /* of packed weights */
  int64_t packed_panels;   /* pieces of weights that are packed */
  int64_t unpacked_panels; /* pieces not packed because of packed_bytes of the options */
} sluice_stats;
SLUICE_API sluice_status sluice_context_get_stats(sluice_context* context, sluice_stats* stats);

/* Records runs from now on, at most this many spans per worker (0: 2^20); a full recording drops its oldest.
 */
SLUICE_API sluice_status sluice_context_trace_start(sluice_context* context, uint64_t spans_per_worker);
SLUICE_API sluice_status sluice_context_trace_stop(sluice_context* context);
/* Takes what `count` contexts of one program recorded, and writes one file for ui.perfetto.dev (trace event
   JSON), with one process per rank. The file is complete or does not exist. One thread at a time for all of
   them. */
SLUICE_API sluice_status sluice_trace_write(sluice_context* const* contexts, size_t count, const char* path);

/* --- Step: a run that was submitted; wait, poll and error: one thread; cancel: any thread */

typedef struct sluice_step sluice_step;

/* Requests a run and returns at once. Uses the tensors that are bound now. Steps of a workspace run in the
   order of the sluice_context_run and sluice_context_submit calls of all its contexts. A step that is refused
   here is refused at the other ranks in its turn. */
SLUICE_API sluice_status sluice_context_submit(sluice_context* context, const char* entry, uint32_t saved,
                                               sluice_step** step);
/* Waits until the step has ended, and returns its status; may be called again. */
SLUICE_API sluice_status sluice_step_wait(sluice_step* step);
/* done: 1 if sluice_step_wait would not wait. */
SLUICE_API sluice_status sluice_step_poll(sluice_step* step, int32_t* done);
/* A step that has not begun never begins: it is refused at the other ranks, and the steps before and after it
   are not affected. A running step is aborted at all ranks, and so is the transport. A finished step does not
   change. Returns at once. */
SLUICE_API sluice_status sluice_step_cancel(sluice_step* step);
/* The message of the last failed call on this step, "" if there is none; valid until the next call on it. */
SLUICE_API const char* sluice_step_error(const sluice_step* step);
/* Waits for the step to end. */
SLUICE_API void sluice_step_free(sluice_step* step);

#ifdef __cplusplus
}
#endif

#endif /* SLUICE_RUNTIME_API_SLUICE_H */
