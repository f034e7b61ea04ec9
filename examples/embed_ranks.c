/* Runs a layer whose experts two processes share, from C: each has half of them, and its own tokens.
 *
 *   sluicec graphs/moe_ffn/forward.json --set ep=2 --set experts=8 --set top_k=3 --set hidden=64 \
 *           --set intermediate=48 --set max_tokens=100 -o ranks.slp
 *   cc -std=c11 embed_ranks.c $(pkg-config --cflags --libs sluice) -lm && ./a.out ranks.slp
 *
 * Each rank checks its y against double precision: every weight follows from its place, so that a rank knows
 * those of the other's experts, too. The layer: y[t] = sum over its experts e of w * (silu(g) * u) @ down[e],
 * with (g, u) = x[t] @ gate_up[e].
 */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <sluice.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 2, MAX_DIMS = 4 };

static int my_rank;
static int64_t hidden, intermediate, top_k;

static void check(sluice_status status) {
  if (status == SLUICE_OK) return;
  fprintf(stderr, "embed_ranks: error: rank %d: %s (%s)\n", my_rank, sluice_last_error(),
          sluice_status_name(status));
  exit(1); /* the other rank is told */
}

static float from_bf16(uint16_t bits) {
  const uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return value;
}

/* The bf16 number at a place of what tensor number `tensor` has at all ranks, in [-0.5, 0.5). */
static uint16_t number(uint32_t tensor, int64_t place) {
  uint32_t state = (uint32_t)place * 2654435761u + tensor * 40503u;
  state = (state ^ state >> 15) * 2246822519u;
  const float value = (float)(state >> 8) / (float)(1 << 24) - 0.5f;
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (uint16_t)(bits >> 16);
}

enum { X, GATE_UP, DOWN };

static double at(uint32_t tensor, int64_t place) { return from_bf16(number(tensor, place)); }

static int32_t expert_of(int64_t token, int64_t k, int32_t experts) {
  return (int32_t)((token * 5 + k * 2 + my_rank) % experts);
}
static float weight_of(int64_t k) { return 1.0f / (float)(k + 2); }

/* Memory for a tensor of the program, bound to it; its dimensions at this rank. */
static void* bind(sluice_context* context, const sluice_program* program, const char* name, int64_t tokens,
                  int64_t dims[MAX_DIMS]) {
  sluice_program_info info = {.size = sizeof info};
  check(sluice_program_get_info(program, &info));
  for (uint32_t i = 0; i < info.tensor_count; ++i) {
    int64_t elements = 1;
    sluice_tensor_info about = {.size = sizeof about};
    check(sluice_program_get_tensor(program, i, &about));
    if (strcmp(about.name, name) != 0) continue;
    check(sluice_program_tensor_dims(program, i, my_rank, tokens, 0, dims, MAX_DIMS));
    for (int32_t d = 0; d < about.dim_count; ++d) elements *= dims[d];
    void* const data = calloc((size_t)elements, (size_t)sluice_type_bytes(about.type));
    sluice_tensor view = {.size = sizeof view, .type = about.type, .dim_count = about.dim_count};
    view.dims = dims;
    view.data = data;
    check(sluice_context_bind(context, name, &view));
    return data;
  }
  fprintf(stderr, "embed_ranks: error: the program has no tensor '%s'\n", name);
  exit(1);
}

/* Adds what an expert gives for a token of this rank. */
static void add_expert(int64_t token, int64_t e, double weight, double* y) {
  for (int64_t i = 0; i < intermediate; ++i) {
    double g = 0, u = 0;
    for (int64_t h = 0; h < hidden; ++h) {
      const int64_t row = (e * hidden + h) * 2 * intermediate;
      const double x = at(X + 8 * (uint32_t)my_rank, token * hidden + h);
      g += x * at(GATE_UP, row + i);
      u += x * at(GATE_UP, row + intermediate + i);
    }
    const double act = weight * g / (1 + exp(-g)) * u;
    for (int64_t h = 0; h < hidden; ++h) y[h] += act * at(DOWN, (e * intermediate + i) * hidden + h);
  }
}

static int run_rank(const char* path, const char* job_name) {
  sluice_program* program;
  sluice_transport* transport;
  sluice_context* context;
  check(sluice_program_load(path, &program));
  sluice_program_info info = {.size = sizeof info};
  check(sluice_program_get_info(program, &info));
  const sluice_job job = {.size = sizeof job, .name = job_name, .rank = my_rank, .ranks = RANKS};
  check(sluice_transport_join(&job, &transport));
  check(sluice_context_create(program, transport, NULL, &context));

  const int64_t tokens =
      info.max_tokens - 7 * my_rank; /* any number up to max_tokens, another at each rank */
  int64_t dims[MAX_DIMS];
  uint16_t* const x = bind(context, program, "x", tokens, dims);
  int32_t* const ids = bind(context, program, "expert_ids", tokens, dims);
  float* const weights = bind(context, program, "expert_weights", tokens, dims);
  uint16_t* const gate_up = bind(context, program, "gate_up_weight", tokens, dims);
  uint16_t* const down = bind(context, program, "down_weight", tokens, dims);
  top_k = info.top_k, intermediate = dims[1], hidden = dims[2];
  const int64_t own = dims[0], first = my_rank * own;
  const uint16_t* const y = bind(context, program, "y", tokens, dims);
  for (int64_t i = 0; i < tokens * hidden; ++i) x[i] = number(X + 8 * (uint32_t)my_rank, i);
  for (int64_t i = 0; i < tokens * top_k; ++i) {
    ids[i] = expert_of(i / top_k, i % top_k, info.experts);
    weights[i] = weight_of(i % top_k);
  }
  const int64_t of_gate_up = hidden * 2 * intermediate, of_down = intermediate * hidden;
  for (int64_t i = 0; i < own * of_gate_up; ++i) gate_up[i] = number(GATE_UP, first * of_gate_up + i);
  for (int64_t i = 0; i < own * of_down; ++i) down[i] = number(DOWN, first * of_down + i);

  check(sluice_context_run(context, "forward",
                           SLUICE_SAVED_DEFAULT)); /* with the same step at the other rank */
  double worst = 0, largest = 0;
  double* const expected = malloc((size_t)hidden * sizeof *expected);
  for (int64_t t = 0; t < tokens; ++t) {
    memset(expected, 0, (size_t)hidden * sizeof *expected);
    for (int64_t k = 0; k < top_k; ++k) add_expert(t, expert_of(t, k, info.experts), weight_of(k), expected);
    for (int64_t h = 0; h < hidden; ++h) {
      worst = fmax(worst, fabs(from_bf16(y[t * hidden + h]) - expected[h]));
      largest = fmax(largest, fabs(expected[h]));
    }
  }
  printf("rank %d: %lld tokens, experts %lld to %lld, error %.1e of the largest value\n", my_rank,
         (long long)tokens, (long long)first, (long long)(first + own - 1), worst / largest);
  sluice_context_free(context);
  sluice_transport_free(transport);
  sluice_program_free(program);
  return !(worst < 1.2e-2 * largest);
}

int main(int argc, char** argv) {
  if (argc != 2) return fprintf(stderr, "usage: embed_ranks ranks.slp\n"), 2;
  char job_name[32]; /* no other job of this user has it */
  snprintf(job_name, sizeof job_name, "embed-%ld", (long)getpid());
  const pid_t child = fork();
  if (child < 0) return perror("embed_ranks: error: fork"), 1;
  my_rank = child == 0; /* two processes that are started in any other way do the same */
  const int status = run_rank(argv[1], job_name);
  if (child == 0) return status;
  int of_child;
  if (waitpid(child, &of_child, 0) != child || !WIFEXITED(of_child)) return 1;
  return status | WEXITSTATUS(of_child);
}
