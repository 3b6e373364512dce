// The kernels of a step that writes one text, without a model: products, attention and small kernels between them, in
// the order and sizes of a Llama, captured as a CUDA graph. Prints the time of a step with launches that overlap and
// with launches one after the other, and that of each product. Needs a GPU and nothing else:
//
//   build/dev/bin/step_kernels [7b|1b] [position]
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "kernels/cached_attention.h"
#include "kernels/overlapped_launch.h"
#include "kernels/quantized_products.h"
#include "kernels/row_products.h"

namespace {

using namespace dslaunch::kernels;

struct Size {
  const char* name;
  size_t layers, width, hidden, heads, kv_heads, classes;
};
constexpr Size kSizes[] = {{"7b", 32, 4096, 11008, 32, 32, 32000}, {"1b", 16, 2048, 8192, 32, 8, 128256}};
constexpr int kReplays = 30;

void check(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  std::fprintf(stderr, "step_kernels: %s: %s\n", what, cudaGetErrorString(result));
  std::exit(1);
}

// Stands for a norm, a rotation or an activation: every output of a block depends on its inputs.
__global__ void mix_kernel(const uint16_t* in, uint16_t* out, size_t count) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    out[i] = static_cast<uint16_t>((in[i] & 0x807FU) | 0x3F00U);  // between a half and one, with the sign
  }
}

// Pseudo-random words with bits of `kept` from a hash and those of `set`.
__global__ void fill_kernel(uint32_t* words, size_t count, uint32_t kept, uint32_t set) {
  for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    uint32_t hash = static_cast<uint32_t>(i) * 0x9E3779B9U;
    hash = (hash ^ (hash >> 15)) * 0x85EBCA6BU;
    words[i] = ((hash ^ (hash >> 13)) & kept) | set;
  }
}

class Memory {
 public:
  template <class T = void>
  T* take(size_t bytes, int fill) {
    void* out = nullptr;
    check(cudaMalloc(&out, bytes), "allocate");
    check(cudaMemset(out, fill, bytes), "fill");
    all_.push_back(out);
    return static_cast<T*>(out);
  }
  ~Memory() {
    for (void* each : all_) cudaFree(each);
  }

 private:
  std::vector<void*> all_;
};

enum class Format { kBf16, kInt8, kFp8, kInt4 };
constexpr const char* kNames[] = {"bf16", "int8", "fp8", "int4"};

struct Matrix {
  void *values = nullptr, *scales = nullptr;
  size_t outputs = 0;
};

class Step {
 public:
  Step(const Size& size, Format format, int64_t position) : size_(size), format_(format) {
    const size_t head = size.width / size.heads, kv = head * size.kv_heads;
    for (size_t layer = 0; layer < size.layers; ++layer) {
      layers_.push_back({{matrix(size.width, size.width), matrix(kv, size.width), matrix(kv, size.width)},
                         {matrix(size.width, size.width)},
                         {matrix(size.hidden, size.width), matrix(size.hidden, size.width)},
                         {matrix(size.width, size.hidden)}});
      keys_.push_back(memory_.take(kPages * kCachePageTokens * kv * 2, 0x3C));
      values_.push_back(memory_.take(kPages * kCachePageTokens * kv * 2, 0x3C));
    }
    head_ = {matrix(size.classes, size.width)};
    for (auto& each : buffers_)
      each = memory_.take<uint16_t>(std::max({size.classes, size.hidden, size.width}) * 2, 0x3C);
    std::vector<int32_t> pages;
    for (size_t i = 0; i < kPages; ++i) pages.push_back(static_cast<int32_t>(i));
    page_table_ = memory_.take<int32_t>(kPages * 4, 0);
    positions_ = memory_.take<int64_t>(8, 0);
    check(cudaMemcpy(page_table_, pages.data(), kPages * 4, cudaMemcpyHostToDevice), "copy");
    check(cudaMemcpy(positions_, &position, 8, cudaMemcpyHostToDevice), "copy");
    tickets_ = memory_.take<unsigned>(4096, 0);
    partials_ = memory_.take<float>(size_t{64} << 20, 0);
  }

  size_t bytes() const { return bytes_; }

  void enqueue(cudaStream_t stream, bool overlaps) {
    overlaps_ = overlaps;
    stream_ = stream;
    const size_t width = size_.width;
    check(cudaMemsetAsync(buffers_[0], 0x3C, width * 2, stream), "fill");
    for (size_t layer = 0; layer < size_.layers; ++layer) {
      auto& own = layers_[layer];
      mix(buffers_[0], buffers_[1], width, 1);
      multiply(own.qkv, buffers_[1], width, {buffers_[2], buffers_[3], buffers_[4]});
      mix(buffers_[2], buffers_[5], width, 2);
      mix(buffers_[3], buffers_[6], own.qkv[1].outputs, 2);
      attend(layer);
      multiply(own.out, buffers_[1], width, {buffers_[2]});
      mix(buffers_[2], buffers_[3], width, 1);
      multiply(own.gate_up, buffers_[3], width, {buffers_[4], buffers_[5]});
      mix(buffers_[4], buffers_[6], size_.hidden, 6);
      multiply(own.down, buffers_[6], size_.hidden, {buffers_[0]});
    }
    mix(buffers_[0], buffers_[1], width, 1);
    multiply(head_, buffers_[1], width, {buffers_[2]});
  }

  // One product of every layer.
  void enqueue_one(cudaStream_t stream, int which) {
    overlaps_ = false;
    stream_ = stream;
    for (auto& own : layers_) {
      const std::vector<Matrix>* parts[] = {&own.qkv, &own.out, &own.gate_up, &own.down};
      multiply(*parts[which], buffers_[0], which == 3 ? size_.hidden : size_.width,
               {buffers_[2], buffers_[3], buffers_[4]});
    }
  }

  size_t bytes_of(int which) const {
    const auto& own = layers_[0];
    const std::vector<Matrix>* parts[] = {&own.qkv, &own.out, &own.gate_up, &own.down};
    size_t sum = 0;
    for (const Matrix& each : *parts[which]) sum += bytes_of(each.outputs, which == 3 ? size_.hidden : size_.width);
    return sum;
  }

  std::vector<uint16_t> result() const {
    std::vector<uint16_t> out(size_.classes);
    check(cudaMemcpy(out.data(), buffers_[2], out.size() * 2, cudaMemcpyDeviceToHost), "copy");
    return out;
  }

 private:
  static constexpr size_t kPages = 16;
  struct Layer {
    std::vector<Matrix> qkv, out, gate_up, down;
  };

  size_t bytes_of(size_t outputs, size_t columns) const {
    const size_t elements = outputs * columns;
    return format_ == Format::kBf16   ? 2 * elements
           : format_ == Format::kInt4 ? elements / 2 + elements / kInt4Group * 4
                                      : elements + 4 * outputs;
  }

  Matrix matrix(size_t outputs, size_t columns) {
    Matrix out{.outputs = outputs};
    const size_t elements = outputs * columns;
    bytes_ += bytes_of(outputs, columns);
    const bool is_int4 = format_ == Format::kInt4;
    const size_t values = format_ == Format::kBf16 ? 2 * elements : is_int4 ? elements / 2 : elements;
    out.values = memory_.take(values, 0);
    // bf16 from 2^-7 to 2^-6, bytes that are finite as e4m3, each with a sign.
    const bool is_bf16 = format_ == Format::kBf16;
    fill_kernel<<<1024, 256>>>(static_cast<uint32_t*>(out.values), values / 4, is_bf16 ? 0x807F807FU : 0xB7B7B7B7U,
                               is_bf16 ? 0x3C003C00U : 0U);
    check(cudaGetLastError(), "fill");
    // 0x38 in each byte is 4.4e-5 in fp32 and in both halves of a pair of bf16.
    if (format_ != Format::kBf16) out.scales = memory_.take(is_int4 ? elements / kInt4Group * 4 : outputs * 4, 0x38);
    return out;
  }

  void mix(const uint16_t* in, uint16_t* out, size_t count, unsigned blocks) {
    void* parameters[] = {&in, &out, &count};
    check(launch_overlapped(reinterpret_cast<const void*>(mix_kernel), dim3(blocks), 512, 0, stream_, parameters,
                            overlaps_),
          "launch");
  }

  void multiply(const std::vector<Matrix>& parts, const uint16_t* input, size_t columns,
                const std::vector<uint16_t*>& outs) {
    if (format_ == Format::kBf16) {
      RowProducts p{
          .input = input, .type = ElementType::kBFloat16, .rows = 1, .columns = columns, .overlaps = overlaps_};
      for (const Matrix& each : parts)
        p.parts[p.num_parts] = {each.values, nullptr, outs[p.num_parts], each.outputs}, ++p.num_parts;
      return check(launch_row_products(p, stream_), "launch");
    }
    QuantizedProducts p{.input = input, .rows = 1, .columns = columns, .overlaps = overlaps_};
    p.format = format_ == Format::kInt8  ? WeightFormat::kInt8
               : format_ == Format::kFp8 ? WeightFormat::kFp8
                                         : WeightFormat::kInt4;
    for (const Matrix& each : parts) {
      p.parts[p.num_parts] = {{each.values, each.scales, each.outputs}, nullptr, outs[p.num_parts]};
      ++p.num_parts;
    }
    check(launch_quantized_products(p, stream_), "launch");
  }

  void attend(size_t layer) {
    const size_t head = size_.width / size_.heads;
    CachedAttention a{.query = {buffers_[5], head, size_.width},
                      .key = {buffers_[6], head, head * size_.kv_heads},
                      .value = {buffers_[4], head, head * size_.kv_heads}};
    a.key_pages = keys_[layer];
    a.value_pages = values_[layer];
    a.page_table = page_table_;
    a.positions = positions_;
    a.scale = 0.1F;
    a.type = ElementType::kBFloat16;
    a.heads = size_.heads;
    a.kv_heads = size_.kv_heads;
    a.width = head;
    a.texts = 1;
    a.pages_of_text = kPages;
    a.overlaps = overlaps_;
    check(launch_cached_attention(a, {partials_, tickets_}, buffers_[1], stream_), "launch");
  }

  const Size& size_;
  const Format format_;
  Memory memory_;
  std::vector<Layer> layers_;
  std::vector<Matrix> head_;
  std::vector<void*> keys_, values_;
  uint16_t* buffers_[7] = {};
  int32_t* page_table_ = nullptr;
  int64_t* positions_ = nullptr;
  unsigned* tickets_ = nullptr;
  float* partials_ = nullptr;
  size_t bytes_ = 0;
  bool overlaps_ = false;
  cudaStream_t stream_ = nullptr;
};

// Milliseconds of a replay.
double time_of(const std::function<void(cudaStream_t)>& enqueue) {
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  cudaEvent_t begin = nullptr, end = nullptr;
  check(cudaStreamCreate(&stream), "create a stream");
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "capture");
  enqueue(stream);
  check(cudaStreamEndCapture(stream, &graph), "capture");
  check(cudaGraphInstantiate(&ready, graph, 0), "instantiate");
  check(cudaEventCreate(&begin), "create an event");
  check(cudaEventCreate(&end), "create an event");
  for (int i = 0; i < 5; ++i) check(cudaGraphLaunch(ready, stream), "launch");
  check(cudaEventRecord(begin, stream), "record");
  for (int i = 0; i < kReplays; ++i) check(cudaGraphLaunch(ready, stream), "launch");
  check(cudaEventRecord(end, stream), "record");
  check(cudaStreamSynchronize(stream), "run");
  float ms = 0;
  check(cudaEventElapsedTime(&ms, begin, end), "measure");
  check(cudaGraphExecDestroy(ready), "destroy");
  check(cudaGraphDestroy(graph), "destroy");
  check(cudaStreamDestroy(stream), "destroy");
  return ms / kReplays;
}

void measure(const Size& size, Format format, int64_t position) {
  Step step(size, format, position);
  const double alone = time_of([&](cudaStream_t stream) { step.enqueue(stream, false); });
  const auto expected = step.result();
  const double overlapped = time_of([&](cudaStream_t stream) { step.enqueue(stream, true); });
  const auto gigabytes = static_cast<double>(step.bytes()) / 1e9;
  std::printf("%s %-4s  %.3f GB: one after the other %.3f ms (%.2f TB/s), overlapped %.3f ms (%.2f TB/s), results %s\n",
              size.name, kNames[static_cast<int>(format)], gigabytes, alone, gigabytes / alone, overlapped,
              gigabytes / overlapped, expected == step.result() ? "equal" : "DIFFER");
  constexpr const char* kProducts[] = {"q|k|v", "out", "gate|up", "down"};
  for (int which = 0; which < 4; ++which) {
    const double us = 1000 * time_of([&](cudaStream_t stream) { step.enqueue_one(stream, which); }) /
                      static_cast<double>(size.layers);
    std::printf("    %-8s %7.2f us  %.2f TB/s\n", kProducts[which], us,
                static_cast<double>(step.bytes_of(which)) / us / 1e6);
  }
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "7b";
  const int64_t position = argc > 2 ? std::atoll(argv[2]) : 200;
  for (const Size& size : kSizes) {
    if (name != size.name || position < 0 || position >= 1024) continue;
    for (const Format format : {Format::kBf16, Format::kInt8, Format::kFp8, Format::kInt4})
      measure(size, format, position);
    return 0;
  }
  std::fprintf(stderr, "step_kernels: expected 7b or 1b, and a position below 1024\n");
  return 64;
}
