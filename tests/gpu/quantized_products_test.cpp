// Linear layers of a few rows with weights in 8 and 4 bits, beside PyTorch in fp64 with the same weights.
#include <ATen/ATen.h>

#include <catch2/catch.hpp>

#include "runtime/device/device_module.hpp"
#include "runtime/model/decoding/decoding_functions.hpp"
#include "runtime/model/decoding/row_products.hpp"
#include "support/cuda_device.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::model;
using namespace dslaunch::runtime::model::decoding;

namespace {

const at::Device kGpu(at::kCUDA, 0);

struct Layer {
  QuantizedWeightPtr weight;
  at::Tensor wide;  // fp64, on the host
};

// Outliers make most elements small beside their scale.
Layer random_layer(WeightType type, int64_t outputs, int64_t columns, at::ScalarType dtype) {
  const at::Tensor value = at::randn({outputs, columns}) * at::randn({outputs, 1}).exp();
  value.select(1, columns / 3).mul_(200);
  Layer out{c10::make_intrusive<QuantizedWeight>(type), {}};
  QuantizedWeight on_host(type);
  on_host.quantize(value, at::kFloat);
  out.weight->quantize(value.to(kGpu), dtype);
  CHECK(at::equal(out.weight->values.view(at::kByte).cpu(), on_host.values.view(at::kByte)));
  CHECK(at::equal(out.weight->scales.cpu(), on_host.scales));
  CHECK(at::equal(out.weight->whole().cpu(), on_host.whole().to(dtype)));
  out.wide = on_host.whole().to(at::kDouble);
  return out;
}

// The largest difference from `expected`, in units of its row's sum of magnitudes.
double difference(const at::Tensor& found, const at::Tensor& input, const at::Tensor& wide, const at::Tensor& bias) {
  const at::Tensor rows = input[0].to(at::kDouble).cpu();
  const at::Tensor expected = at::matmul(rows, wide.t()) + bias;
  const at::Tensor size = expected.abs() + 1e-3 * at::matmul(rows.abs(), wide.abs().t());
  return ((found[0].to(at::kDouble).cpu() - expected).abs() / size).max().item<double>();
}

}  // namespace

TEST_CASE("linear layers with quantized weights are those of the weights they stand for", "[gpu][decoding]") {
  if (!test::has_device()) return;
  at::manual_seed(3);
  for (const auto type : {WeightType::kInt8, WeightType::kFp8, WeightType::kInt4}) {
    for (const auto dtype : {at::kBFloat16, at::kHalf}) {
      for (const auto& [columns, outputs] : {std::pair{128, 1}, {384, 33}, {4096, 640}, {11008, 50}, {2048, 16}}) {
        const Layer layer = random_layer(type, outputs, columns, dtype);
        const Layer other = random_layer(type, 2 * outputs + 1, columns, dtype);
        const auto options = at::TensorOptions(kGpu).dtype(dtype);
        const at::Tensor bias = at::randn({outputs}, options), none = at::zeros({1}, at::kDouble);
        const double bound = dtype == at::kHalf ? 1e-3 : 4.5e-3;  // half of the last bit, and the sums' own in fp32
        for (const int64_t rows : {1, 2, 3, 5, 8}) {
          INFO(weight_type_name(type) << " " << dtype << " " << columns << " " << outputs << " " << rows);
          const at::Tensor input = at::randn({1, rows, columns}, options);
          std::vector<at::Tensor> outs;
          for (const int64_t count : {outputs, 2 * outputs + 1, outputs})
            outs.push_back(at::empty({rows, count}, options));
          REQUIRE(device::module().decoding.multiply_quantized_rows(
              input[0], {layer.weight, other.weight, layer.weight}, std::vector<at::Tensor>{{}, {}, bias}, outs,
              /*overlaps=*/false));
          CHECK(difference(outs[0].unsqueeze(0), input, layer.wide, none) <= bound);
          CHECK(difference(outs[1].unsqueeze(0), input, other.wide, none) <= bound);
          CHECK(difference(outs[2].unsqueeze(0), input, layer.wide, bias.to(at::kDouble).cpu()) <= bound);
          const auto alone = quantized_linears_of_rows(input, {layer.weight}, {at::Tensor()});
          CHECK(at::equal(alone[0][0], outs[0]));
        }
        const at::Tensor some = at::randn({1, 21, columns}, options);  // eight at a time
        CHECK(difference(quantized_linears_of_rows(some, {layer.weight}, {bias})[0], some, layer.wide,
                         bias.to(at::kDouble).cpu()) <= bound);
        const at::Tensor many = at::randn({1, 33, columns}, options);  // by a GEMM
        const auto outs = quantized_linears_of_rows(many, {layer.weight}, {bias});
        CHECK(at::equal(outs[0], at::linear(many, layer.weight->whole(), bias)));
      }
    }
  }
}

TEST_CASE("quantized weights that the kernel does not take are expanded", "[gpu][decoding]") {
  if (!test::has_device()) return;
  at::manual_seed(4);
  for (const auto type : {WeightType::kInt8, WeightType::kFp8}) {
    const Layer narrow = random_layer(type, 40, 48, at::kHalf);  // the last tile is cut
    const at::Tensor input = at::randn({1, 3, 48}, at::TensorOptions(kGpu).dtype(at::kHalf));
    CHECK(difference(quantized_linears_of_rows(input, {narrow.weight}, {at::Tensor()})[0], input, narrow.wide,
                     at::zeros({1}, at::kDouble)) <= 1e-3);
    const Layer wide = random_layer(type, 40, 64, at::kFloat);
    const at::Tensor single = at::randn({1, 2, 64}, at::TensorOptions(kGpu));
    CHECK(at::equal(quantized_linears_of_rows(single, {wide.weight}, {at::Tensor()})[0],
                    at::linear(single, wide.weight->whole())));
  }
}
