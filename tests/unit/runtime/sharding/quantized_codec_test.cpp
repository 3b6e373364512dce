#include "runtime/sharding/quantized_codec.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <limits>

#include "quantized_samples.hpp"

using namespace dslaunch::runtime;

namespace {

at::Tensor round_trip(const at::Tensor& values, WireFormat format) {
  at::Tensor out = at::empty_like(values);
  dequantize(quantize(values, format), format, out);
  return out;
}

constexpr WireFormat kFormats[] = {{8, 256}, {4, 256}, {8, 64}, {4, 64}};

// From the definition, with ATen's operators: fp32 scales [blocks] and codes [blocks, block].
std::pair<at::Tensor, at::Tensor> defined(const at::Tensor& values, WireFormat format) {
  const int64_t blocks = (values.numel() + format.block - 1) / format.block;
  const at::Tensor padded =
      at::constant_pad_nd(values.to(at::kFloat), {0, blocks * format.block - values.numel()}).view({blocks, -1});
  const at::Tensor scales = padded.abs().amax({1}, true) / static_cast<double>(format.largest_code());
  return {scales.flatten(), (padded * scales.reciprocal()).round()};
}

}  // namespace

TEST_CASE("an element comes back within half a step of its block", "[runtime][sharding][quantized_codec]") {
  for (const auto format : kFormats) {
    for (int64_t numel : {1, 2, 63, 64, 255, 256, 257, 5000}) {
      const at::Tensor values = noise(numel, numel) * at::logspace(-6, 6, numel, 10.0);
      const at::Tensor back = round_trip(values, format);
      CHECK((back - values).abs().le(bound(values, format)).all().item<bool>());
      CHECK(quantize(values, format).numel() == wire_bytes(numel, format));
    }
  }
}

TEST_CASE("the largest element of a block and zeros are exact", "[runtime][sharding][quantized_codec]") {
  for (const auto format : kFormats) {
    at::Tensor values = at::zeros({600}, at::kFloat);
    CHECK(round_trip(values, format).equal(values));
    values[10] = -3.5;
    values[599] = 7.0;
    const at::Tensor back = round_trip(values, format);
    CHECK(back[10].item<float>() == Approx(-3.5).epsilon(1e-6));
    CHECK(back[599].item<float>() == Approx(7.0).epsilon(1e-6));
    CHECK(back.count_nonzero().item<int64_t>() == 2);
  }
}

TEST_CASE("all whole multiples of the scale are exact", "[runtime][sharding][quantized_codec]") {
  CHECK(round_trip(at::arange(-127, 128, at::kFloat) * 0.25, {8, 256}).equal(at::arange(-127, 128, at::kFloat) * 0.25));
  CHECK(round_trip(at::arange(-7, 8, at::kFloat) * 0.25, {4, 64}).equal(at::arange(-7, 8, at::kFloat) * 0.25));
}

TEST_CASE("the wire is a quarter and an eighth of fp32, and its scales", "[runtime][sharding][quantized_codec]") {
  CHECK(wire_bytes(1 << 20, {8, 256}) == (1 << 20) + 4 * 4096);
  CHECK(wire_bytes(1 << 20, {4, 256}) == (1 << 19) + 4 * 4096);
  CHECK(wire_bytes(0, {8, 256}) == 0);
}

TEST_CASE("a block that is not finite stays so and spoils no other", "[runtime][sharding][quantized_codec]") {
  for (const auto format : kFormats) {
    for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()}) {
      at::Tensor values = noise(3 * format.block, 4);
      values[format.block] = bad;
      const at::Tensor back = round_trip(values, format).view({3, format.block});
      CHECK_FALSE(back[1].isfinite().any().item<bool>());
      CHECK(back[0].isfinite().all().item<bool>());
      CHECK(back[2].isfinite().all().item<bool>());
    }
  }
}

TEST_CASE("scales and codes lie on the wire as they are defined", "[runtime][sharding][quantized_codec]") {
  for (const auto format : kFormats) {
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
      for (int64_t numel : {1, 65, 256, 1000, 70'000}) {
        CAPTURE(format.bits, format.block, numel);
        const at::Tensor values = noise(numel, numel).to(dtype);
        const auto [scales, codes] = defined(values, format);
        const at::Tensor wire = quantize(values, format);
        const int64_t scale_bytes = 4 * scales.numel();
        CHECK(wire.narrow(0, 0, scale_bytes).clone().view(at::kFloat).equal(scales));
        const at::Tensor bytes = wire.narrow(0, scale_bytes, wire.numel() - scale_bytes);
        if (format.bits == 8) {
          CHECK(bytes.clone().view(at::kChar).equal(codes.flatten().to(at::kChar)));
        } else {
          const at::Tensor halves = (codes.flatten() + 8).to(at::kByte).view({-1, 2});
          CHECK(bytes.equal(halves.select(1, 0) + halves.select(1, 1) * 16));
        }
      }
    }
  }
}

TEST_CASE("what was quantized is added in one pass", "[runtime][sharding][quantized_codec]") {
  for (const auto format : kFormats) {
    const at::Tensor values = noise(333, 7), sum = noise(333, 8), expected = sum + round_trip(values, format);
    add_dequantized(quantize(values, format), format, sum);
    CHECK(sum.equal(expected));
  }
}

TEST_CASE("feedback keeps a moving average of what was lost, and no overflow", "[runtime][sharding][quantized_codec]") {
  const at::Tensor values = noise(256, 3);
  ErrorFeedback feedback(0.25, 1024);
  at::Tensor expected = at::zeros({256}, at::kFloat), wire = at::empty({wire_bytes(256, kGradientWire)}, at::kByte);
  for (int use = 0; use < 3; ++use) {
    const at::Tensor wanted = values + expected;
    const Feedback fed = feedback.next(values);
    quantize(values, kGradientWire, wire, &fed);
    CHECK(wire.equal(quantize(wanted, kGradientWire)));
    expected = expected * 0.25F + (wanted - round_trip(wanted, kGradientWire)) * 0.75F;
    CHECK(at::allclose(fed.error, expected, 1e-6, 1e-8));
    expected = fed.error.clone();
  }
  at::Tensor broken = values.clone();
  broken[70] = std::numeric_limits<float>::infinity();
  const Feedback fed = feedback.next(broken);
  quantize(broken, kGradientWire, wire, &fed);
  CHECK(fed.error.isfinite().all().item<bool>());
}

TEST_CASE("feedback starts again after its interval", "[runtime][sharding][quantized_codec]") {
  const at::Tensor values = noise(256, 3);
  ErrorFeedback feedback(0.5, 2);
  const auto sent = [&] {
    const Feedback fed = feedback.next(values);
    at::Tensor wire = at::empty({wire_bytes(256, kGradientWire)}, at::kByte);
    quantize(values, kGradientWire, wire, &fed);
    return wire;
  };
  const at::Tensor first = sent(), second = sent();
  CHECK_FALSE(first.equal(second));
  CHECK(sent().equal(first));
}
