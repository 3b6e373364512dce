#include "runtime/engine/inference/trained_model.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "runtime/model/torchscript/load_script_model.hpp"
#include "runtime/state/model_metadata.hpp"
#include "runtime/state/write_buffer.hpp"

namespace dslaunch::runtime::engine::inference {
namespace {

std::vector<size_t> numbers_in(const ParameterTable& trained, const ParameterTable& own) {
  std::map<std::string, size_t> by_name;
  for (size_t i = 0; i < trained.parameters.size(); ++i) by_name[trained.parameters[i].name] = i;
  std::vector<size_t> out;
  for (const auto& info : own.parameters) out.push_back(by_name.at(info.name));
  return out;
}

// `members`: of a unit, with its values.
void note(std::vector<at::Tensor>& out, const std::vector<int>& members, const std::vector<at::Tensor>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i].defined()) out[static_cast<size_t>(members[i])] = values[i];
  }
}

void note(std::vector<at::Tensor>& out, const UnitInfo& unit, const UnitValues& values) {
  note(out, unit.parameters, values.parameters);
  note(out, unit.frozen, values.frozen);
}

}  // namespace

std::vector<at::Tensor> whole_parameters(const ParameterTable& table, UnitParameters& units) {
  std::vector<at::Tensor> out(table.parameters.size());
  note(out, table.units[0], units.acquire(0, UnitCall::kInference));
  for (size_t i = 1; i < table.units.size(); ++i) {
    const int unit = static_cast<int>(i);
    note(out, table.units[i], units.acquire(unit, UnitCall::kInference));
    units.release(unit);
  }
  units.release(0);
  return out;
}

// The model's own units get values that the trained model's units have left.
class TrainedModel::Whole final : public UnitParameters {
 public:
  Whole(const ParameterTable& own, std::vector<at::Tensor> values) : own_(own), values_(std::move(values)) {}

  UnitValues acquire(int unit, UnitCall) override {
    UnitValues out;
    for (const int each : own_.units[static_cast<size_t>(unit)].parameters) {
      out.parameters.push_back(values_[static_cast<size_t>(each)]);
    }
    return out;
  }
  void release(int) override {}
  void prepare_backward(int) override {}
  void take_gradients(int, std::vector<at::Tensor>) override {}

 private:
  const ParameterTable& own_;
  const std::vector<at::Tensor> values_;  // by own parameter
};

// A call of one of the model's own units calls those of the trained model's units that have its parameters.
class TrainedModel::ByUnit final : public UnitParameters {
 public:
  ByUnit(const ParameterTable& own, const ParameterTable& trained, const std::vector<size_t>& numbers,
         UnitParameters& units, std::function<void()> begin_pass)
      : own_(own), trained_(trained), numbers_(numbers), units_(units), begin_pass_(std::move(begin_pass)) {
    for (const UnitInfo& unit : own.units) {
      std::set<int> needs;  // in the order of their use
      for (const auto* members : {&unit.parameters, &unit.frozen}) {
        for (const int each : *members) needs.insert(trained.parameters[number_of(each)].unit);
      }
      needs.erase(0);  // the root is called around all others
      needs_.emplace_back(needs.begin(), needs.end());
    }
  }

  UnitValues acquire(int unit, UnitCall) override {
    if (unit == 0) begin();
    for (const int each : needs_[static_cast<size_t>(unit)]) call(each);
    UnitValues out;
    const UnitInfo& info = own_.units[static_cast<size_t>(unit)];
    for (const int each : info.parameters) out.parameters.push_back(values_[number_of(each)]);
    for (const int each : info.frozen) out.frozen.push_back(values_[number_of(each)]);
    return out;
  }

  void release(int unit) override {
    const auto& needs = needs_[static_cast<size_t>(unit)];
    for (auto each = needs.rbegin(); each != needs.rend(); ++each) units_.release(*each);
    if (unit == 0) end();
  }

  void prepare_backward(int) override {}
  void take_gradients(int, std::vector<at::Tensor>) override {}

  // Also after a forward that failed, which has not released its units.
  void end() {
    if (std::exchange(is_open_, false)) units_.release(0);
    values_.clear();
  }

 private:
  size_t number_of(int own) const { return numbers_[static_cast<size_t>(own)]; }

  void begin() {
    end();
    begin_pass_();
    is_open_ = true;
    values_.assign(trained_.parameters.size(), {});
    call(0);
  }

  void call(int unit) {
    note(values_, trained_.units[static_cast<size_t>(unit)], units_.acquire(unit, UnitCall::kInference));
  }

  const ParameterTable& own_;
  const ParameterTable& trained_;
  const std::vector<size_t>& numbers_;
  UnitParameters& units_;
  const std::function<void()> begin_pass_;
  std::vector<std::vector<int>> needs_;  // by own unit
  std::vector<at::Tensor> values_;       // by parameter of the trained model, in a forward
  bool is_open_ = false;                 // the root is called
};

TrainedModel::TrainedModel(const model::Model& trained, ModelSource source, const model::DtypeOf& dtypes,
                           bool takes_units)
    : trained_(trained),
      source_(std::move(source)),
      model_(model::torchscript::load_token_model(source_.path, inference_passes(source_.dtype.value_or(at::kFloat)),
                                                  /*keeps_units=*/takes_units)),
      hugging_face_(read_hugging_face_facts(read_model_metadata(source_.path).text, source_.path)),
      numbers_(numbers_in(trained.facts.table, model_->facts.table)) {
  // The values of the file are those of the run's beginning, and another copy of them.
  model_->to_device(source_.device, dtypes, std::vector<bool>(model_->facts.table.parameters.size(), true));
  model_->runnable->train(false);
}

TrainedModel::~TrainedModel() = default;

void TrainedModel::take_held() {
  std::map<std::string, at::Tensor> buffers;
  for (const auto& [name, value] : trained_.tensors.buffers()) buffers[name] = value;
  for (auto& [name, value] : model_->tensors.buffers()) write_buffer(value, buffers.at(name));
  for (size_t i = 0; i < numbers_.size(); ++i) {
    if (model_->facts.table.parameters[i].trainable) continue;
    model_->tensors.set_frozen_value(static_cast<int>(i), trained_.tensors.frozen_value(static_cast<int>(numbers_[i])));
  }
}

void TrainedModel::use(const std::vector<at::Tensor>& parameters) {
  take_held();
  std::vector<at::Tensor> values;
  for (size_t i = 0; i < numbers_.size(); ++i) {
    values.push_back(parameters[numbers_[i]]);
    const bool is_frozen = !model_->facts.table.parameters[i].trainable;
    if (is_frozen && values.back().defined()) model_->tensors.set_frozen_value(static_cast<int>(i), values.back());
  }
  whole_ = std::make_unique<Whole>(model_->facts.table, std::move(values));
  model_->runnable->set_unit_parameters(whole_.get());
}

void TrainedModel::use_units(UnitParameters& units, std::function<void()> begin_pass) {
  take_held();
  by_unit_ =
      std::make_unique<ByUnit>(model_->facts.table, trained_.facts.table, numbers_, units, std::move(begin_pass));
  model_->runnable->set_unit_parameters(by_unit_.get());
}

void TrainedModel::end_units() {
  by_unit_->end();
}

}  // namespace dslaunch::runtime::engine::inference
