#include "launch/plan/model_file.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;

namespace {

int code_for(const std::string& path, const std::string& word) {
  try {
    check_model_file(path);
  } catch (const UserError& error) {
    INFO(error.what());
    CHECK_THAT(error.what(), Catch::Contains(word));
    return to_int(error.code());
  }
  return 0;
}

}  // namespace

TEST_CASE("suggests exec for a Python file", "[launch][model_file]") {
  CHECK(code_for("train.py", "dslaunch exec -- python train.py") == 64);
}

TEST_CASE("names the kind of other files", "[launch][model_file]") {
  CHECK(code_for("net.pt2", "torch.export") == 65);
  CHECK(code_for("weights.safetensors", "TorchScript") == 65);
  CHECK(code_for("ds.json", "--config ds.json") == 64);
}

TEST_CASE("distinguishes missing files and directories from models", "[launch][model_file]") {
  test::TempDir dir;
  CHECK(code_for(dir / "none.pt", "does not exist") == 66);
  CHECK(code_for(dir.path(), "is a directory") == 65);
  CHECK(code_for("/dev/null", "device or pipe") == 66);
  CHECK(code_for(dir.write("model.pt", "anything"), "") == 0);
  CHECK(code_for(dir / "model.pt/below.pt", "") == 66);
}
