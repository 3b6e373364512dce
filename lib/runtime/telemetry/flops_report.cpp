#include "runtime/telemetry/flops_report.hpp"

#include <algorithm>
#include <unordered_map>

#include "base/format.hpp"
#include "runtime/telemetry/python_text.hpp"

namespace dslaunch::runtime {
namespace {

// DeepSpeed's number_to_string: two decimals and a letter.
std::string number(double value) {
  static constexpr std::pair<double, const char*> kUnits[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "K"}};
  for (const auto& [size, unit] : kUnits) {
    if (value >= size) return python_rounded(value / size) + " " + unit;
  }
  if (value >= 1 || value == 0) return python_rounded(value) + " ";
  return value >= 1e-3 ? python_rounded(value * 1e3) + " m" : python_rounded(value * 1e6) + " u";
}
std::string macs_text(double value) {
  return number(value) + "MACs";
}
std::string flops_text(double per_second) {
  return number(per_second) + "FLOPS";
}
std::string seconds_text(double value) {
  return number(value) + "s";
}
std::string params_text(double value) {
  std::string text = number(value);
  std::replace(text.begin(), text.end(), 'G', 'B');
  if (text.ends_with(' ')) text.pop_back();
  return text;
}

double rate(double amount, double seconds) {
  return seconds > 0 ? amount / seconds : 0;
}
std::string percent(double part, double whole) {
  return python_rounded(whole > 0 ? 100 * part / whole : 0);
}

std::string line(const std::string& title, const std::string& value) {
  return fmt::format("{:<70}  {:<8}\n", title, value);
}

std::string backward_lines(const ProfiledModule& model, double recompute, const PhaseTimes& times,
                           const FlopsReportContext& context) {
  const auto flops = static_cast<double>(model.flops);
  const double factor = 2 + recompute;
  const double forward = times.forward / 1e3, backward = times.backward / 1e3, step = times.step / 1e3;
  const double all = forward + backward + step;
  const auto samples = static_cast<double>(context.micro_batch * context.mesh.data);
  return line("bwd latency: ", seconds_text(backward)) +
         line(fmt::format("bwd FLOPS per GPU = {:g} * fwd flops per GPU / bwd latency: ", factor),
              flops_text(rate(factor * flops, backward))) +
         line(fmt::format("fwd+bwd FLOPS per GPU = {:g} * fwd flops per GPU / (fwd+bwd latency): ", factor + 1),
              flops_text(rate((factor + 1) * flops, forward + backward))) +
         line("step latency: ", seconds_text(step)) + line("iter latency: ", seconds_text(all)) +
         line(fmt::format("FLOPS per GPU = {:g} * fwd flops per GPU / iter latency: ", factor + 1),
              flops_text(rate((factor + 1) * flops, all))) +
         line("samples/second: ", python_rounded(rate(samples, all)));
}

std::string summary(const ProfiledModule& model, const config::FlopsProfiler& options,
                    const FlopsReportContext& context) {
  const auto flops = static_cast<double>(model.flops), params = static_cast<double>(model.params);
  const double forward = context.times ? context.times->forward / 1e3 : model.seconds;
  std::string out =
      "\n-------------------------- DeepSpeed Flops Profiler --------------------------\n"
      "Profile Summary at step " +
      std::to_string(context.step) +
      ":\n"
      "Notations:\n"
      "data parallel size (dp_size), model parallel size(mp_size),\n"
      "number of parameters (params), number of multiply-accumulate operations(MACs),\n"
      "number of floating-point operations (flops), floating-point operations per second (FLOPS),\n"
      "fwd latency (forward propagation latency), bwd latency (backward propagation latency),\n"
      "step (weights update latency), iter latency (sum of fwd, bwd and step latency)\n\n";
  out += line("world size: ", std::to_string(context.mesh.size()));
  out += line("data parallel size: ", std::to_string(context.mesh.data));
  out += line("model parallel size: ", std::to_string(context.mesh.tensor));
  out += line("batch size per GPU: ", std::to_string(context.micro_batch));
  out += line("params per GPU: ", params_text(params));
  out += line("params of model = params per GPU * mp_size: ", params_text(params * context.mesh.tensor));
  out += line("fwd MACs per GPU: ", macs_text(static_cast<double>(model.macs)));
  out += line("fwd flops per GPU: ", number(flops));
  out += line("fwd flops of model = fwd flops per GPU * mp_size: ", number(flops * context.mesh.tensor));
  out += line("fwd latency: ", seconds_text(forward));
  out += line("fwd FLOPS per GPU = fwd flops per GPU / fwd latency: ", flops_text(rate(flops, forward)));
  if (context.times) out += backward_lines(model, options.recompute_fwd_factor, *context.times, context);
  return out;
}

struct ClassTotal {
  std::string name;
  double macs = 0, params = 0, seconds = 0;
};

// By class, in the order of the tree.
std::vector<ClassTotal> totals_at(const std::vector<ProfiledModule>& tree, size_t depth) {
  std::vector<ClassTotal> totals;
  for (const auto& module : tree) {
    if (module.depth != depth) continue;
    auto found = std::find_if(totals.begin(), totals.end(), [&](const auto& t) { return t.name == module.class_name; });
    if (found == totals.end()) found = totals.insert(found, {module.class_name});
    found->macs += static_cast<double>(module.macs);
    found->params += static_cast<double>(module.params);
    found->seconds += module.seconds;
  }
  return totals;
}

// The largest totals as a Python dict: {'Block': '1.2 K'}.
std::string largest(std::vector<ClassTotal> totals, size_t most, double ClassTotal::*field,
                    std::string (*text)(double)) {
  std::stable_sort(totals.begin(), totals.end(), [&](const auto& a, const auto& b) { return a.*field > b.*field; });
  totals.resize(std::min(most, totals.size()));
  std::string out;
  for (const auto& total : totals)
    out += fmt::format("{}'{}': '{}'", out.empty() ? "" : ", ", total.name, text(total.*field));
  return "{" + out + "}";
}

std::string aggregated(const std::vector<ProfiledModule>& tree, const config::FlopsProfiler& options) {
  std::string out = "\n----------------------------- Aggregated Profile per GPU -----------------------------\n";
  out += fmt::format("Top {} modules in terms of params, MACs or fwd latency at different model depths:\n",
                     options.top_modules);
  size_t deepest = 0;
  for (const auto& module : tree) deepest = std::max(deepest, module.depth);
  // With DeepSpeed's -1 the innermost depth is left out.
  const size_t depths = options.module_depth < 0 ? std::max<size_t>(deepest, 1)
                                                 : std::min(static_cast<size_t>(options.module_depth), deepest + 1);
  const auto most = static_cast<size_t>(options.top_modules);
  for (size_t depth = 0; depth < depths; ++depth) {
    const auto totals = totals_at(tree, depth);
    out += fmt::format("depth {}:\n", depth);
    out += "    params      - " + largest(totals, most, &ClassTotal::params, params_text) + "\n";
    out += "    MACs        - " + largest(totals, most, &ClassTotal::macs, macs_text) + "\n";
    out += "    fwd latency - " + largest(totals, most, &ClassTotal::seconds, seconds_text) + "\n";
  }
  return out;
}

// Python's repr of a tree of modules, each with its profile.
std::string describe(const std::vector<ProfiledModule>& tree, size_t index, const std::string& indent) {
  const auto& module = tree[index];
  const auto& model = tree[0];
  const auto value = [](int64_t count) { return static_cast<double>(count); };
  const std::string profile =
      fmt::format("{} = {}% Params, {} = {}% MACs, {} = {}% latency, {}", params_text(value(module.params)),
                  percent(value(module.params), value(model.params)), macs_text(value(module.macs)),
                  percent(value(module.macs), value(model.macs)), seconds_text(module.seconds),
                  percent(module.seconds, model.seconds), flops_text(rate(value(module.flops), module.seconds)));
  if (module.children.empty()) return module.class_name + "(" + profile + ")";
  std::string out = module.class_name + "(\n" + indent + "  " + profile + "\n";
  for (size_t child : module.children) {
    out += indent + "  (" + tree[child].name + "): " + describe(tree, child, indent + "  ") + "\n";
  }
  return out + indent + ")";
}

std::string detailed(const std::vector<ProfiledModule>& tree) {
  return "\n------------------------------ Detailed Profile per GPU ------------------------------\n"
         "Each module profile is listed after its name in the following order: \n"
         "params, percentage of total params, MACs, percentage of total MACs, fwd latency, percentage of total fwd "
         "latency, fwd FLOPS\n"
         "\nNote: 1. What a module computes itself, outside its submodules, makes up the difference between its MACs "
         "(or latency) and the sum of its submodules'.\n"
         "2. Number of floating-point operations is a theoretical estimation, thus FLOPS computed using that could be "
         "larger than the maximum system throughput.\n"
         "3. The fwd latency listed in the top module's profile is that of the model's forward alone.\n\n" +
         describe(tree, 0, "") + "\n";
}

std::string parent_of(const std::string& path) {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? std::string() : path.substr(0, dot);
}

bool is_below(const std::string& name, const std::string& path) {
  return path.empty() || (name.size() > path.size() && name.starts_with(path) && name[path.size()] == '.');
}

int64_t params_below(const ParameterTable& table, const std::string& path) {
  int64_t params = 0;
  for (const auto& parameter : table.parameters) {
    const auto& aliases = parameter.aliases;
    const bool counts =
        is_below(parameter.name, path) ||
        std::any_of(aliases.begin(), aliases.end(), [&](const auto& name) { return is_below(name, path); });
    if (counts) params += parameter.numel;
  }
  return params;
}

}  // namespace

std::vector<ProfiledModule> profile_tree(const std::vector<ModuleInfo>& modules, const std::vector<ModuleCost>& costs,
                                         const ParameterTable& table) {
  std::vector<ProfiledModule> tree(modules.size());
  std::unordered_map<std::string, size_t> index_of;
  for (size_t i = 0; i < modules.size(); ++i) {
    const auto& path = modules[i].path;
    index_of.emplace(path, i);
    tree[i] = {path.substr(path.rfind('.') + 1),
               modules[i].class_name,
               0,
               {},
               params_below(table, path),
               costs[i].own.flops,
               costs[i].own.macs,
               costs[i].milliseconds / 1e3};
    if (i == 0) continue;
    auto& parent = tree[index_of.at(parent_of(path))];
    parent.children.push_back(i);
    tree[i].depth = parent.depth + 1;
  }
  for (size_t i = tree.size(); i-- > 0;) {  // children come after their parents
    double below = 0;
    for (size_t child : tree[i].children) {
      tree[i].flops += tree[child].flops;
      tree[i].macs += tree[child].macs;
      below += tree[child].seconds;
    }
    if (tree[i].seconds == 0) tree[i].seconds = below;
  }
  return tree;
}

std::string format_flops_report(const std::vector<ProfiledModule>& tree, const config::FlopsProfiler& options,
                                const FlopsReportContext& context) {
  return summary(tree[0], options, context) + aggregated(tree, options) + (options.detailed ? detailed(tree) : "") +
         "------------------------------------------------------------------------------\n";
}

}  // namespace dslaunch::runtime
