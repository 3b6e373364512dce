#include "launch/plan/remote_environment.hpp"

#include <catch2/catch.hpp>
#include <filesystem>

#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;
using test::expect_error;

TEST_CASE("variables of training are sent to other hosts, variables of this machine are not",
          "[launch][remote_environment]") {
  Environment inherited{{"NCCL_DEBUG", "INFO"},
                        {"PYTHONPATH", "/code"},
                        {"LD_LIBRARY_PATH", "/lib"},
                        {"CUDA_HOME", "/cuda"},
                        {"FI_PROVIDER", "efa"},
                        {"HF_TOKEN", "t"},
                        {"OMP_NUM_THREADS", "4"},
                        {"AZUREML_RUN_TOKEN", "r"},
                        {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
                        {"CUDA_VISIBLE_DEVICES", "0"},
                        {"TORCHELASTIC_RUN_ID", "x"},
                        {"DSLAUNCH_TOKEN", "secret"},
                        {"DSLAUNCH_JOB_ID", "j"},
                        {"DS_ENV_FILE", "f"},
                        {"PATH", "/bin"},
                        {"HOME", "/root"},
                        {"SSH_AUTH_SOCK", "/s"},
                        {"AWS_SECRET_ACCESS_KEY", "k"},
                        {"MY_NCCL", "no prefix"},
                        {"LD_PRELOAD", "x.so"}};
  std::vector<std::string> names;
  for (const auto& [name, value] : exported_environment(inherited)) {
    CHECK(value == inherited[name]);
    names.push_back(name);
  }
  CHECK(names == std::vector<std::string>{"AZUREML_RUN_TOKEN", "CUDA_HOME", "FI_PROVIDER", "HF_TOKEN",
                                          "LD_LIBRARY_PATH", "NCCL_DEBUG", "OMP_NUM_THREADS", "PYTHONPATH",
                                          "TORCH_NCCL_ASYNC_ERROR_HANDLING"});
}

TEST_CASE("network cards are not exported where DeepSpeed does not either", "[launch][remote_environment]") {
  Environment inherited{{"NCCL_IB_HCA", "mlx5"}, {"NCCL_DEBUG", "INFO"}, {"UCX_NET_DEVICES", "mlx5"}};
  CHECK(exported_environment(inherited).size() == 3);
  inherited["AISC_JOB_NAME"] = "j";
  CHECK(exported_environment(inherited) == Environment{{"NCCL_DEBUG", "INFO"}});
}

TEST_CASE("the job's environment overrides a remote rank's login environment", "[launch][remote_environment]") {
  CHECK(merged_environment({{"HOME", "/home/b"}, {"NCCL_DEBUG", "WARN"}}, {{"NCCL_DEBUG", "INFO"}, {"A", "1"}}) ==
        Environment{{"HOME", "/home/b"}, {"NCCL_DEBUG", "INFO"}, {"A", "1"}});
}

TEST_CASE("a virtual environment comes first in the host's own PATH", "[launch][remote_environment]") {
  test::TempDir dir;
  std::filesystem::create_directory(dir / "bin");
  std::filesystem::create_symlink("/bin/sh", dir / "bin/python");
  Environment env{{"PATH", "/usr/bin:/bin"}, {"PYTHONHOME", "/opt"}, {"A", "1"}};
  apply_venv(env, dir.path());
  CHECK(env == Environment{{"PATH", (dir / "bin") + ":/usr/bin:/bin"}, {"VIRTUAL_ENV", dir.path()}, {"A", "1"}});
  Environment bare;
  apply_venv(bare, dir.path());
  CHECK(bare["PATH"] == (dir / "bin") + ":/usr/local/bin:/usr/bin:/bin");
}

TEST_CASE("a directory without python is not a virtual environment", "[launch][remote_environment]") {
  test::TempDir dir;
  Environment env{{"PATH", "/bin"}};
  auto refused = [&] {
    expect_error(ExitCode::kNoInput, {"--venv " + dir.path(), "bin/python", "on this host"},
                 [&] { apply_venv(env, dir.path()); });
  };
  refused();
  std::filesystem::create_directories(dir / "bin/python");
  refused();
  std::filesystem::remove(dir / "bin/python");
  test::write_file(dir / "bin/python", "");  // not executable
  refused();
  CHECK(env == Environment{{"PATH", "/bin"}});
}

TEST_CASE("an activation script selects its directory; other scripts are refused", "[launch][remote_environment]") {
  CHECK(venv_of_script("/opt/env/bin/activate") == "/opt/env");
  CHECK(venv_of_script("env/bin/activate") == "env");
  CHECK(venv_of_script("bin/activate") == ".");
  for (const char* other : {"/opt/setup.sh", "/opt/env/activate", "/opt/env/bin/activate.fish", ""}) {
    expect_error(ExitCode::kUsage, {"--venv DIR", "--env_file"}, [&] { venv_of_script(other); });
  }
}
