// LibTorch's record-function hooks for one listener: calls its begin() and end() for operators, backward nodes and
// TorchScript functions. Nothing is installed, and there is no overhead, while no OperatorScopes exists.
#pragma once
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <c10/util/ArrayRef.h>

#include <memory>
#include <string>
#include <unordered_set>

namespace dslaunch::runtime {

// Backward of a custom autograd function is named by its C++ class: FusedLinearBackward, like PyTorch's own.
std::string readable_name(std::string name);

// The arguments of an observed call: TorchScript's interpreter passes its whole stack, whose last values they are.
c10::ArrayRef<const c10::IValue> own_arguments(const at::RecordFunction& call);

// Listener: has `std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction&)` and `void end(const
// at::RecordFunction&, at::ObserverContext*)`, which must not throw. At most one listener of a type at a time. With
// `every_thread` calls come from all threads, otherwise only from the thread that created this object, which must also
// destroy it.
template <class Listener>
class OperatorScopes {
 public:
  OperatorScopes(Listener& listener, std::unordered_set<at::RecordScope> scopes, bool with_arguments,
                 bool every_thread) {
    active_ = &listener;
    auto callback = at::RecordFunctionCallback([](const at::RecordFunction& call) { return active_->begin(call); },
                                               [](const at::RecordFunction& call, at::ObserverContext* context) {
                                                 active_->end(call, context);
                                               })
                        .needsInputs(with_arguments)
                        .scopes(scopes);
    handle_ = every_thread ? at::addGlobalCallback(callback) : at::addThreadLocalCallback(callback);
  }
  ~OperatorScopes() { at::removeCallback(handle_); }
  OperatorScopes(const OperatorScopes&) = delete;
  OperatorScopes& operator=(const OperatorScopes&) = delete;

 private:
  inline static Listener* active_ = nullptr;
  at::CallbackHandle handle_ = 0;
};

}  // namespace dslaunch::runtime
