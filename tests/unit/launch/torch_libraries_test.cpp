#include "launch/process/torch_libraries.hpp"

#include <catch2/catch.hpp>
#include <filesystem>

#include "base/error.hpp"
#include "support/expect_error.hpp"
#include "support/set_env.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;
namespace fs = std::filesystem;

TEST_CASE("the named directory of LibTorch comes first, with NVIDIA's libraries beside it",
          "[launch][torch_libraries]") {
  const test::TempDir dir;
  const std::string lib = dir / "site/torch/lib", nccl = dir / "site/nvidia/nccl/lib";
  fs::create_directories(lib);
  const test::SetEnv named("DSLAUNCH_TORCH_LIB", lib);
  CHECK(test::message_of(ExitCode::kNoInput, dir.path(), [] { torch_library_path(""); }) ==
        "DSLAUNCH_TORCH_LIB is DIR/site/torch/lib, but libtorch_cpu.so is not there: set it to the directory torch/lib "
        "of "
        "PyTorch 2.11.0");
  dir.write("site/torch/lib/libtorch_cpu.so", "");
  CHECK(torch_library_path("") == lib);
  CHECK(torch_library_path("/own:/other") == lib + ":/own:/other");
  fs::create_directories(nccl);
  CHECK(torch_library_path("/own") == lib + ":" + nccl + ":/own");
}

TEST_CASE("the active Python environment counts before the one of setup", "[launch][torch_libraries]") {
  const test::TempDir dir;
  const std::string active = dir / "venv", pinned = dir / "cache/dslaunch/torch-2.11.0";
  fs::create_directories(active);
  const test::SetEnv venv("VIRTUAL_ENV", active), conda("CONDA_PREFIX", dir / "none"),
      cache("XDG_CACHE_HOME", dir / "cache");
  CHECK(python_environments() == std::vector{active});
  fs::create_directories(pinned);
  CHECK(python_environments() == std::vector{active, pinned});
}
