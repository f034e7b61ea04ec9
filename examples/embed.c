/* Runs a compiled MoE-FFN layer from C: load, bind, run forward and backward, check against double precision.
 *
 *   sluicec graphs/moe_ffn/train.json --set ep=1 --set experts=8 --set top_k=2 --set hidden=64 \
 *           --set intermediate=48 --set max_tokens=64 -o layer.slp
 *   cc -std=c11 embed.c $(pkg-config --cflags --libs sluice) -lm && ./a.out layer.slp
 *
 * The layer: y[t] = sum over its experts e of w * (silu(g) * u) @ down[e], with (g, u) = x[t] @ gate_up[e].
 */
#include <math.h>
#include <sluice.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TENSORS 16
#define MAX_DIMS 4

typedef struct {
  const char* name;
  sluice_type type;
  int64_t dims[MAX_DIMS];
  int64_t elements;
  void* data;
} tensor;

static tensor tensors[MAX_TENSORS];
static uint32_t tensor_count;

/* Every call that can fail returns a status, and says why in words. */
static void check(sluice_status status) {
  if (status == SLUICE_OK) return;
  fprintf(stderr, "embed: error: %s (%s)\n", sluice_last_error(), sluice_status_name(status));
  exit(1);
}

static float from_bf16(uint16_t bits) {
  const uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return value;
}

static uint16_t to_bf16(float value) { /* ties away from zero: good enough for inputs */
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (uint16_t)((bits + 0x8000u) >> 16);
}

static float small_random(void) { /* uniform in [-0.5, 0.5) */
  static uint32_t state = 1;
  state = state * 1664525u + 1013904223u;
  return (float)(state >> 8) / (float)(1 << 24) - 0.5f;
}

static tensor* named(const char* name) {
  for (uint32_t i = 0; i < tensor_count; ++i)
    if (strcmp(tensors[i].name, name) == 0) return &tensors[i];
  fprintf(stderr, "embed: error: the program has no tensor '%s'\n", name);
  exit(1);
}

static double at(const tensor* t, int64_t i) {
  return t->type == SLUICE_BF16 ? from_bf16(((uint16_t*)t->data)[i]) : ((float*)t->data)[i];
}

/* The program says what it needs: memory for each tensor, of its type and its shape for so many tokens. */
static void make_tensors(const sluice_program* program, int64_t tokens, const sluice_program_info* info) {
  if (info->tensor_count > MAX_TENSORS) exit(1);
  for (tensor_count = 0; tensor_count < info->tensor_count; ++tensor_count) {
    tensor* t = &tensors[tensor_count];
    sluice_tensor_info about = {.size = sizeof about};
    check(sluice_program_get_tensor(program, tensor_count, &about));
    check(sluice_program_tensor_dims(program, tensor_count, 0, tokens, 0, t->dims, MAX_DIMS));
    t->name = about.name;
    t->type = about.type;
    t->elements = 1;
    for (int32_t d = 0; d < about.dim_count; ++d) t->elements *= t->dims[d];
    t->data = calloc((size_t)t->elements, (size_t)sluice_type_bytes(t->type));
    if (t->data == NULL) exit(1);
  }
}

/* Inputs are written where they are bound: nothing is copied later. */
static void fill_inputs(int64_t tokens, int64_t experts, int64_t top_k) {
  const char* names[] = {"x", "gate_up_weight", "down_weight", "dy"};
  for (int n = 0; n < 4; ++n) {
    tensor* t = named(names[n]);
    for (int64_t i = 0; i < t->elements; ++i) ((uint16_t*)t->data)[i] = to_bf16(small_random());
  }
  int32_t* ids = named("expert_ids")->data;
  float* weights = named("expert_weights")->data;
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t k = 0; k < top_k; ++k) { /* the experts of a token differ; -1 would be none */
      ids[t * top_k + k] = (int32_t)((t * 5 + k * (t % 2 + 1)) % experts);
      weights[t * top_k + k] = 1.0f / (float)(k + 2);
    }
}

/* One (token, expert) pair, added to y and dx; returns the gradient of its weight. */
static double pair(int64_t t, int64_t e, double w, double* y, double* dx) {
  const tensor *x = named("x"), *up = named("gate_up_weight"), *down = named("down_weight"),
               *dy = named("dy");
  const int64_t H = down->dims[2], I = down->dims[1];
  double dot = 0;
  for (int64_t i = 0; i < I; ++i) {
    double g = 0, u = 0, da = 0;
    for (int64_t h = 0; h < H; ++h) {
      g += at(x, t * H + h) * at(up, (e * H + h) * 2 * I + i);
      u += at(x, t * H + h) * at(up, (e * H + h) * 2 * I + I + i);
      da += at(dy, t * H + h) * at(down, (e * I + i) * H + h);
    }
    const double s = 1 / (1 + exp(-g)), act = g * s * u;
    const double dg = w * da * u * s * (1 + g * (1 - s)), du = w * da * g * s;
    dot += act * da;
    for (int64_t h = 0; h < H; ++h) {
      y[h] += w * act * at(down, (e * I + i) * H + h);
      dx[h] += dg * at(up, (e * H + h) * 2 * I + i) + du * at(up, (e * H + h) * 2 * I + I + i);
    }
  }
  return dot;
}

/* The largest difference of n elements from `first` on, and the largest value, are kept in worst[0], [1]. */
static void compare(const tensor* found, int64_t first, const double* expected, int64_t n, double* worst) {
  for (int64_t i = 0; i < n; ++i) {
    worst[0] = fmax(worst[0], fabs(at(found, first + i) - expected[i]));
    worst[1] = fmax(worst[1], fabs(expected[i]));
  }
}

static int check_results(int64_t tokens, int64_t top_k) {
  const char* names[] = {"y", "dx", "d_expert_weights"};
  double worst[3][2] = {{0}};
  const int64_t H = named("x")->dims[1];
  const int32_t* ids = named("expert_ids")->data;
  double* sums = malloc((size_t)H * 2 * sizeof *sums);
  if (sums == NULL) return 1;
  for (int64_t t = 0; t < tokens; ++t) {
    memset(sums, 0, (size_t)H * 2 * sizeof *sums);
    for (int64_t k = 0; k < top_k; ++k) {
      const int64_t p = t * top_k + k;
      const double gradient = pair(t, ids[p], at(named("expert_weights"), p), sums, sums + H);
      compare(named(names[2]), p, &gradient, 1, worst[2]);
    }
    compare(named(names[0]), t * H, sums, H, worst[0]);
    compare(named(names[1]), t * H, sums + H, H, worst[1]);
  }
  free(sums);
  int status = 0;
  for (int n = 0; n < 3; ++n) {
    const double error = worst[n][0] / worst[n][1];
    printf("%-20s%.3e of the largest value\n", names[n], error);
    if (!(error < 1.2e-2)) status = 1;
  }
  return status;
}

int main(int argc, char** argv) {
  if (argc != 2) return fprintf(stderr, "usage: embed layer.slp\n"), 2;
  sluice_program* program;
  sluice_transport* alone;
  sluice_context* context;
  sluice_step* step;
  check(sluice_program_load(argv[1], &program));
  sluice_program_info info = {.size = sizeof info};
  check(sluice_program_get_info(program, &info));
  const int64_t tokens = info.max_tokens; /* any number up to it, in every run */
  make_tensors(program, tokens, &info);
  fill_inputs(tokens, info.experts, info.top_k);

  check(sluice_transport_alone(&alone));
  sluice_context_options options = {.size = sizeof options, .threads = 2};
  check(sluice_context_create(program, alone, &options, &context));
  for (uint32_t i = 0; i < tensor_count; ++i) {
    const tensor* t = &tensors[i];
    sluice_tensor_info about = {.size = sizeof about};
    check(sluice_program_get_tensor(program, i, &about));
    sluice_tensor view = {.size = sizeof view, .type = t->type, .dim_count = about.dim_count};
    view.dims = t->dims;
    view.data = t->data;
    check(sluice_context_bind(context, t->name, &view));
  }
  check(sluice_context_run(context, "forward", SLUICE_SAVED_DEFAULT));
  check(sluice_context_submit(context, "backward", SLUICE_SAVED_DEFAULT, &step)); /* returns at once ... */
  check(sluice_step_wait(step));
  sluice_step_free(step);
  const int status = check_results(tokens, info.top_k);

  sluice_context_free(context);
  sluice_transport_free(alone);
  sluice_program_free(program);
  for (uint32_t i = 0; i < tensor_count; ++i) free(tensors[i].data);
  return status;
}
