#include "runtime/engine/step/stage_link.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::runtime::engine::step {
namespace {

using pipeline::ActionKind;

// Dimensions that a layout message has room for, by tensor. ATen's own limit for most operators.
constexpr int64_t kMaxDims = 25;

std::vector<int64_t> kind_of(const StagePassage& passage) {
  std::vector<int64_t> out{passage.has_backward ? 1 : 0};
  for (const auto* arrays : {&passage.batch.inputs, &passage.batch.labels}) {
    for (const auto& array : *arrays) {
      out.push_back(array.dim());
      out.insert(out.end(), array.sizes().begin(), array.sizes().end());
    }
  }
  return out;
}

// As bytes: the receiver allocates in the sender's dtype.
comm::Buffer bytes_of(const at::Tensor& tensor) {
  return {tensor.data_ptr(), tensor.nbytes(), comm::DType::kUInt8};
}

at::Tensor empty_as(const at::Tensor& value) {
  return at::empty_strided(value.sizes(), value.strides(), value.options());
}

// In the memory order of `value`, as the other end allocates it.
at::Tensor gradient_to_send(const at::Tensor& value) {
  const at::Tensor& gradient = value.grad();
  if (gradient.defined() && gradient.strides() == value.strides()) return gradient;
  at::Tensor out = empty_as(value.detach());
  return gradient.defined() ? out.copy_(gradient) : out.zero_();
}

}  // namespace

struct StageLink::Parts {
  std::vector<comm::Outgoing> sends;
  std::vector<comm::Incoming> receives;
  std::vector<at::Tensor> alive;

  // Neither end has a message for an empty tensor.
  void send(const at::Tensor& tensor, int destination) {
    if (tensor.nbytes() == 0) return;
    sends.push_back({bytes_of(tensor), destination});
    alive.push_back(tensor);
  }
  void receive(const at::Tensor& tensor, int source) {
    if (tensor.nbytes() > 0) receives.push_back({bytes_of(tensor), source});
  }
};

StageLink::StageLink(comm::Communicator& pipe, const model::StageFacts& stage, StepStreams& streams, at::Device device)
    : pipe_(pipe), streams_(streams), device_(device) {
  const auto& stages = stage.plan.stages;
  before_ = cut_of(stages.at(static_cast<size_t>(stage.stage)).carried_in);
  if (!is_last()) after_ = cut_of(stages.at(static_cast<size_t>(stage.stage) + 1).carried_in);
}

StageLink::Cut StageLink::cut_of(const std::vector<model::CarriedInfo>& carried) {
  Cut cut;
  for (const auto& value : carried) {
    cut.is_fixed &= !(value.is_number && value.depends_on_data);
    cut.message_length += value.is_number ? 1 : 2 * kMaxDims + 4;
  }
  cut.message_length += 4;
  return cut;
}

void StageLink::exchange(std::span<const pipeline::Action> transfers, std::span<StagePassage> passages) {
  const at::NoGradGuard no_grad;
  Parts parts;
  std::vector<pipeline::Action> unknown;  // received activations whose layout is still to come
  for (const auto& transfer : transfers) {
    auto& passage = passages[static_cast<size_t>(transfer.micro_batch)];
    const bool is_unknown = transfer.kind == ActionKind::kReceiveActivation &&
                            (!before_.is_fixed || !before_.layouts.contains(kind_of(passage)));
    is_unknown ? unknown.push_back(transfer) : add(transfer, passage, parts);
  }
  if (!unknown.empty()) receive_layouts(unknown, passages, parts);
  issue(parts);
  for (const auto& transfer : transfers) {
    auto& passage = passages[static_cast<size_t>(transfer.micro_batch)];
    if (!pipeline::is_send(transfer.kind)) passage.exchange = num_exchanges_;
    if (transfer.kind == ActionKind::kSendGradient) passage.received = {};
  }
}

// The layouts travel with everything else of the group; the activations behind them in an exchange of their own.
void StageLink::receive_layouts(std::span<const pipeline::Action> transfers, std::span<StagePassage> passages,
                                Parts& first) {
  std::vector<at::Tensor> messages;
  for (size_t i = 0; i < transfers.size(); ++i) {
    messages.push_back(at::empty({before_.message_length}, at::TensorOptions().device(device_).dtype(at::kLong)));
    first.receive(messages.back(), pipe_.rank() - 1);
  }
  issue(first);
  first = {};
  wait_for_exchange(num_exchanges_);
  for (size_t i = 0; i < transfers.size(); ++i) {
    const at::Tensor host = messages[i].cpu();
    const int64_t* values = host.const_data_ptr<int64_t>();
    DSL_CHECK(values[0] >= 0 && values[0] < before_.message_length, "a layout of a wrong length arrived");
    auto& passage = passages[static_cast<size_t>(transfers[i].micro_batch)];
    before_.layouts[kind_of(passage)] = model::decode({values + 1, values + 1 + values[0]});
    add(transfers[i], passage, first);
  }
}

void StageLink::add_layout_to_send(const StagePassage& passage, Parts& parts) {
  const auto layout = model::layout_of(passage.sent);
  const auto [known, is_new] = after_.layouts.try_emplace(kind_of(passage), layout);
  if (after_.is_fixed && !is_new) {
    if (known->second == layout) return;
    throw UserError(
        ExitCode::kBadInput,
        "the shapes of the activations between two pipeline stages changed although the shapes of the micro "
        "batch did not: they depend on the data. Train without pipeline stages, or pad inside the model");
  }
  known->second = layout;
  auto message = model::encode(layout);
  message.insert(message.begin(), static_cast<int64_t>(message.size()));
  DSL_CHECK(std::ssize(message) <= after_.message_length, "a layout is longer than its message");
  message.resize(static_cast<size_t>(after_.message_length));
  parts.send(at::tensor(message, at::kLong).to(device_), pipe_.rank() + 1);
}

void StageLink::add(const pipeline::Action& transfer, StagePassage& passage, Parts& parts) {
  const int peer = pipeline::peer_of(transfer.kind, pipe_.rank());
  switch (transfer.kind) {
    case ActionKind::kSendActivation:
      add_layout_to_send(passage, parts);
      for (const auto& tensor : passage.sent.tensors) parts.send(model::in_layout_order(tensor.detach()), peer);
      break;
    case ActionKind::kReceiveActivation:
      passage.received = model::allocate(before_.layouts.at(kind_of(passage)), device_);
      for (const auto& tensor : passage.received.tensors) parts.receive(tensor, peer);
      break;
    case ActionKind::kSendGradient:
      for (const auto& tensor : passage.received.tensors) {
        if (tensor.requires_grad()) parts.send(gradient_to_send(tensor), peer);
      }
      break;
    case ActionKind::kReceiveGradient: {
      for (const auto& tensor : model::allocate(model::layout_of(passage.sent), device_).tensors) {
        if (!tensor.requires_grad()) continue;
        passage.gradients.push_back(tensor.detach());
        parts.receive(passage.gradients.back(), peer);
      }
      break;
    }
    default:
      throw InternalError(__FILE__, __LINE__, "add", fmt::format("{} is not a transfer", describe(transfer)));
  }
}

void StageLink::issue(Parts& parts) {
  if (parts.sends.empty() && parts.receives.empty()) return;
  streams_.wait(SideStream::kTransfer, streams_.mark());
  auto end = streams_.run(SideStream::kTransfer, [&] { pipe_.exchange(parts.sends, parts.receives); });
  in_flight_.push_back({++num_exchanges_, std::move(end), std::move(parts.alive)});
}

// Exchanges end in their order.
void StageLink::wait_for_exchange(int64_t number) {
  while (!in_flight_.empty() && in_flight_.front().number <= number) {
    streams_.wait(in_flight_.front().end);
    in_flight_.pop_front();
  }
}

}  // namespace dslaunch::runtime::engine::step
