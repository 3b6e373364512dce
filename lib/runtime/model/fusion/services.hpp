// What the fused regions of a model use of the program that runs it. Whoever loads a model hands it over
// (GraphPassOptions): regions keep it in their nodes, since operators of TorchScript have no other context.
#pragma once
#include <torch/custom_class.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace dslaunch::runtime::generated_kernels {
class KernelLibrary;
}

namespace dslaunch::runtime::model::fusion {

// What groups of operators became, and what the user should know of it. Any thread.
class ProgramLog {
 public:
  // What a group became when it first ran for inputs of certain sizes.
  struct Entry {
    size_t num_operators = 0;  // of the group
    size_t num_regions = 0;    // 0: the operators run one by one
    std::string why_none;
  };
  // Called on a thread that runs the model, once for each topic: a word, the same on all ranks.
  using Say = std::function<void(const std::string& topic, const std::string& text)>;

  ProgramLog();  // a warning in the log
  explicit ProgramLog(Say say) : say_(std::move(say)) {}

  void say_once(const std::string& topic, const std::string& text);

  void keep_entries();  // from now on; a run has no use for them
  void add(Entry entry);
  std::vector<Entry> take_entries();

 private:
  const Say say_;
  std::mutex mutex_;
  std::set<std::string> said_;  // guarded, like the rest
  bool keeps_entries_ = false;
  std::vector<Entry> entries_;
};

struct FusionServices : torch::CustomClassHolder {
  std::shared_ptr<generated_kernels::KernelLibrary> kernels;  // null: no region runs on a GPU
  std::shared_ptr<ProgramLog> log = std::make_shared<ProgramLog>();
  bool notes_maxima = false;  // of results in bf16 (device/fp8_maxima.hpp): what reads them casts them to fp8
};

using FusionServicesPtr = c10::intrusive_ptr<FusionServices>;

}  // namespace dslaunch::runtime::model::fusion
