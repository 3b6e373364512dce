// Configs of DeepSpeed's init_inference.
#include "config/inference_keys.hpp"

#include <catch2/catch.hpp>

#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using test::expect_error;

TEST_CASE("keys of init_inference are honoured, answered or refused", "[config][inference_keys]") {
  const test::TempDir dir;
  const auto read = [&](const std::string& text) { return config::read_inference_config(dir.write("a.json", text)); };
  const auto config = read(R"({
    "dtype": "torch.half", "tensor_parallel": {"tp_size": 1}, "mp_size": 1, "replace_with_kernel_inject": true,
    "enable_cuda_graph": false, "max_out_tokens": 512, "quant": {"enabled": false}, "mpu": null
  })");
  CHECK(config.dtype == "fp16");
  CHECK(config.max_tokens == 512);
  CHECK(config.notes == std::vector<std::string>{"replace_with_kernel_inject has no effect: what attention keeps is "
                                                 "derived from the model's graph, whatever its classes are"});
  expect_error(
      ExitCode::kBadInput,
      {"line 1: dtype must be fp32, bf16 or fp16, not the text \"int8\"",
       "tensor_parallel.tp_size must be 1: a model is not cut for inference yet", "quant cannot be had",
       "kernel_injct is not a key of init_inference (did you mean 'kernel_inject'?)"},
      [&] { read(R"({"dtype": "int8", "tp": {"tp_size": 2}, "quant": {"enabled": true}, "kernel_injct": true})"); });
  expect_error(ExitCode::kNoInput, {"absent.json"}, [&] { config::read_inference_config(dir / "absent.json"); });
}
