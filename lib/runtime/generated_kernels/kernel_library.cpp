#include "runtime/generated_kernels/kernel_library.hpp"

#include <chrono>
#include <utility>

#include "base/format.hpp"
#include "base/log.hpp"
#include "runtime/generated_kernels/compiler.hpp"

namespace dslaunch::runtime::generated_kernels {

KernelLibrary::KernelLibrary(std::string directory) : directory_(std::move(directory)), files_(directory_) {}

KernelLibrary::Counts KernelLibrary::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

namespace {

constexpr int kMaxPending = 8;  // threads that compile

// What the machine code depends on.
std::string key_of(const std::string& source, const std::string& architecture, const Compiler& compiler) {
  return fmt::format("// {} NVRTC {}\n{}", architecture, compiler.version(), source);
}

}  // namespace

KernelLibrary::Code KernelLibrary::code(const std::string& source, const std::string& architecture) {
  const auto compiler = Compiler::find();
  if (!compiler.ok()) return Failure{compiler.error()};
  const auto key = key_of(source, architecture, **compiler);
  std::shared_future<Code> pending;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = known_.find(key); found != known_.end()) return found->second;
    if (const auto found = pending_.find(key); found != pending_.end()) pending = found->second;
  }
  return pending.valid() ? pending.get() : make(key, source, architecture);
}

void KernelLibrary::prepare(const std::string& source, const std::string& architecture) {
  const auto compiler = Compiler::find();
  if (!compiler.ok()) return;
  const auto key = key_of(source, architecture, **compiler);
  const std::lock_guard lock(mutex_);
  std::erase_if(pending_, [](const auto& entry) {
    return entry.second.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  });
  if (known_.count(key) > 0 || pending_.count(key) > 0 || pending_.size() >= kMaxPending) return;
  pending_[key] = std::async(std::launch::async, [=, this] { return make(key, source, architecture); }).share();
}

KernelLibrary::Code KernelLibrary::make(const std::string& key, const std::string& source,
                                        const std::string& architecture) {
  const auto began = std::chrono::steady_clock::now();
  const auto keep = [&](std::string cubin, int Counts::*count, double Counts::*seconds) {
    const std::lock_guard lock(mutex_);
    counts_.*count += 1;
    counts_.*seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    return known_.emplace(key, std::make_shared<const std::string>(std::move(cubin))).first->second;
  };
  if (!directory_.empty()) {
    if (auto cubin = files_.read(key)) return keep(std::move(*cubin), &Counts::read, &Counts::reading_seconds);
  }
  auto compiled = (*Compiler::find())->compile(source, architecture);
  if (!compiled.ok()) return Failure{compiled.error()};
  if (!directory_.empty()) {
    const auto written = files_.write(key, *compiled);
    const std::lock_guard lock(mutex_);
    if (!written.ok() && !std::exchange(said_unwritable_, true)) {
      log::warning("compiled kernels are kept in memory only, and every start compiles them again: {}",
                   written.error());
    }
  }
  return keep(*std::move(compiled), &Counts::compiled, &Counts::compiling_seconds);
}

}  // namespace dslaunch::runtime::generated_kernels
