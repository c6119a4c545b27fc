#include "common/metrics/plot.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace manta::metrics {
namespace {

constexpr double kWidth = 760, kPanelHeight = 260, kTop = 44, kLeft = 72, kRight = 20, kPanelTop = 34, kPanelBottom = 46;
constexpr const char* kColours[] = {"#1f6fb4", "#d9541e", "#2c9a4b", "#8756b0"};

std::string Escape(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '&': out += "&amp;"; break;
      case '"': out += "&quot;"; break;
      default: out.push_back(c);
    }
  }
  return out;
}

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();
  void Add(double v) {
    low = std::min(low, v);
    high = std::max(high, v);
  }
  bool empty() const { return low > high; }
  void Widen() {
    if (low == high) {
      const double margin = low == 0 ? 1 : std::abs(low) * 0.1;
      low -= margin;
      high += margin;
    }
  }
};

std::string Label(double value) {
  if (value == 0) return "0";
  if (std::abs(value) >= 1e5 || std::abs(value) < 1e-3) return absl::StrFormat("%.3g", value);
  return absl::StrFormat("%.6g", value);
}

void DrawPanel(const Panel& panel, double top, std::string_view x_label, std::string& svg) {
  const double left = kLeft, right = kWidth - kRight, upper = top + kPanelTop, lower = top + kPanelHeight - kPanelBottom;
  absl::StrAppendFormat(&svg, "<text x=\"%g\" y=\"%g\" font-size=\"14\" font-weight=\"bold\">%s</text>\n", left, top + 20,
                        Escape(panel.title));
  Range xs, ys;
  for (const Series& series : panel.series) {
    for (const auto& [x, y] : series.points) {
      if (!std::isfinite(x) || !std::isfinite(y)) continue;
      xs.Add(x);
      ys.Add(y);
    }
  }
  absl::StrAppendFormat(&svg, "<rect x=\"%g\" y=\"%g\" width=\"%g\" height=\"%g\" fill=\"none\" stroke=\"#888\"/>\n", left,
                        upper, right - left, lower - upper);
  if (xs.empty()) {
    absl::StrAppendFormat(&svg, "<text x=\"%g\" y=\"%g\" text-anchor=\"middle\" fill=\"#888\">no data</text>\n",
                          (left + right) / 2, (upper + lower) / 2);
    return;
  }
  xs.Widen();
  ys.Widen();
  const double room = (ys.high - ys.low) * 0.05;
  ys.low -= room;
  ys.high += room;
  const auto px = [&](double x) { return left + (x - xs.low) / (xs.high - xs.low) * (right - left); };
  const auto py = [&](double y) { return lower - (y - ys.low) / (ys.high - ys.low) * (lower - upper); };
  for (double tick : RoundTicks(ys.low, ys.high, 5)) {
    absl::StrAppendFormat(&svg, "<line x1=\"%g\" y1=\"%.1f\" x2=\"%g\" y2=\"%.1f\" stroke=\"#ddd\"/>\n", left, py(tick), right,
                          py(tick));
    absl::StrAppendFormat(&svg, "<text x=\"%g\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", left - 6, py(tick) + 4, Label(tick));
  }
  for (double tick : RoundTicks(xs.low, xs.high, 8)) {
    absl::StrAppendFormat(&svg, "<line x1=\"%.1f\" y1=\"%g\" x2=\"%.1f\" y2=\"%g\" stroke=\"#888\"/>\n", px(tick), lower, px(tick),
                          lower + 4);
    absl::StrAppendFormat(&svg, "<text x=\"%.1f\" y=\"%g\" text-anchor=\"middle\">%s</text>\n", px(tick), lower + 18, Label(tick));
  }
  absl::StrAppendFormat(&svg, "<text x=\"%g\" y=\"%g\" text-anchor=\"middle\">%s</text>\n", (left + right) / 2, lower + 36,
                        Escape(x_label));
  double legend = right - 8;
  for (size_t i = 0; i < panel.series.size(); ++i) {
    const Series& series = panel.series[i];
    const char* colour = kColours[i % std::size(kColours)];
    std::string points, dots;
    for (const auto& [x, y] : series.points) {
      if (!std::isfinite(x) || !std::isfinite(y)) continue;
      absl::StrAppendFormat(&points, "%.1f,%.1f ", px(x), py(y));
      if (series.markers) absl::StrAppendFormat(&dots, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n", px(x), py(y), colour);
    }
    absl::StrAppendFormat(&svg, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.6\" points=\"%s\"/>\n%s", colour, points, dots);
    absl::StrAppendFormat(&svg, "<text x=\"%g\" y=\"%g\" text-anchor=\"end\" fill=\"%s\">%s</text>\n", legend, top + 20, colour,
                          Escape(series.name));
    legend -= 8.0 * static_cast<double>(series.name.size()) + 16;
  }
}

}  // namespace

std::vector<double> RoundTicks(double low, double high, int count) {
  std::vector<double> ticks;
  if (!(high > low) || !std::isfinite(low) || !std::isfinite(high)) return ticks;
  const double raw = (high - low) / count;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  const double lead = raw / power;
  const double step = power * (lead <= 1.5 ? 1 : lead <= 3.5 ? 2 : lead <= 7.5 ? 5 : 10);
  for (double k = std::ceil(low / step); k * step <= high && ticks.size() < 100; ++k) ticks.push_back(k == 0 ? 0 : k * step);
  return ticks;
}

std::string PlotSvg(std::string_view title, std::string_view x_label, const std::vector<Panel>& panels) {
  const double height = kTop + kPanelHeight * static_cast<double>(panels.size());
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" viewBox=\"0 0 %g %g\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
      "<text x=\"%g\" y=\"28\" font-size=\"17\">%s</text>\n",
      kWidth, height, kWidth, height, kLeft, Escape(title));
  for (size_t i = 0; i < panels.size(); ++i) DrawPanel(panels[i], kTop + kPanelHeight * static_cast<double>(i), x_label, svg);
  return svg + "</svg>\n";
}

}  // namespace manta::metrics
