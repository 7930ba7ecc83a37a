// The sketch of Cormode, Tirthapura and Xu, "Time-decaying sketches for robust aggregation of
// sensor data", line by line on the C++ standard library: what `python -m benchmarks` measures ours
// against.
//
// What it keeps
//   For each level i = 0..M a sample S_i of at most tau elements, one entry for an element in every
//   level that holds it: a std::set ordered by expiry time, which carries the element, and a
//   std::unordered_set of ids for "e in S_i". Elements are processed one at a time.
// Which algorithms
//   1 (state), 2 (ProcessItem), 4 (ExpiryTime), 5 (MinHit) and 6 (query) for an integral decay, and
//   section 4.1 for a decay chosen at query time: there the timestamp stands for the expiry time
//   and there is no clock. `expiry=closed` takes section 3.3's "faster computation" in place of the
//   binary search of Algorithm 4. Merging (Algorithm 3) is not timed and not here.
// Where it departs from the printed text, to be right
//   Algorithm 4 returns the first expired time (printed: the last unexpired one) and takes
//   f(w, 0) - 1 (printed: w f(0) - 1), guarded where f(w, 0) = 0. A window includes age W. A hit is
//   a hash of at most floor(p / 2^i) - 1 everywhere. All elements tied at a cut are discarded
//   together. What expires AT the clock is expired. Algorithm 5 has no hit for L < 0.
// Where it is kinder to itself than the printed text
//   It stops at the first level without a hit, as T_(i+1) is a subset of T_i; it erases what has
//   expired; products of Algorithm 5 are 64-bit where those of the stream fit (`arithmetic=wide`
//   makes them 128-bit, which they are by themselves where they have to be).
// Limits
//   An id has one weight, time and value, as the paper assumes. The clock is the latest timestamp.
//   Decays are evaluated in float64, which may differ from the exact floor where w g(x) comes
//   within rounding of an integer.
//
// Build: c++ -O2 -std=c++17 paper.cpp -o paper
// Run:   paper file=F decay=general|window|exponential|polynomial parameter=X capacity=T levels=M
//              max_weight=W p=P a=A b=B now=C [warm=ROWS] [rows=ROWS] [expiry=closed]
//              [arithmetic=wide] [dump=1]
// F holds rows of four int64: value, weight, timestamp, id. With decay=general, parameter is the
// width of the window that is queried. The measurement runs over rows warm..rows. Prints JSON.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

using Integer = std::int64_t;
using Wide = __int128;

[[noreturn]] static void fail(const std::string& message) {
    std::fprintf(stderr, "paper: %s\n", message.c_str());
    std::exit(2);
}

struct Element {
    Integer value, weight, time, id;  // (v, w, t, id)
};

// ------------------------------------------------------------------------------------- the decay

enum class Kind { general, window, exponential, polynomial };

struct Decay {
    Kind kind;
    double parameter;  // W, rate or exponent
    Integer horizon;   // t_max: f(w, t_max) = 0 for every weight

    Integer operator()(Integer weight, Integer age) const {  // f(w, x)
        switch (kind) {
            case Kind::window:
                return age <= static_cast<Integer>(parameter) ? weight : 0;
            case Kind::exponential:
                return static_cast<Integer>(std::floor(weight * std::exp(-parameter * age)));
            case Kind::polynomial:
                return static_cast<Integer>(std::floor(weight / std::pow(age + 1.0, parameter)));
            default:
                return weight;
        }
    }

    // min{x : f(w, x) <= hit}, solved instead of searched for (section 3.3).
    Integer first_age(Integer weight, Integer hit) const {
        const double ratio = static_cast<double>(weight) / (hit + 1);  // f(w, x) > hit up to this
        switch (kind) {
            case Kind::window:
                return static_cast<Integer>(parameter) + 1;
            case Kind::exponential:
                return static_cast<Integer>(std::floor(std::log(ratio) / parameter)) + 1;
            default:
                return static_cast<Integer>(std::floor(std::pow(ratio, 1 / parameter)));
        }
    }
};

static Decay make_decay(const std::string& name, double parameter, Integer max_weight) {
    if (name == "general") return {Kind::general, parameter, 0};
    if (name == "window") return {Kind::window, parameter, static_cast<Integer>(parameter) + 1};
    if (name == "exponential")
        return {Kind::exponential, parameter,
                static_cast<Integer>(std::log(max_weight + 1.0) / parameter) + 2};
    if (name == "polynomial")
        return {Kind::polynomial, parameter,
                static_cast<Integer>(std::pow(max_weight + 1.0, 1 / parameter)) + 2};
    fail("unknown decay " + name);
}

// ------------------------------------------------------------------------- hits of a progression

// Algorithm 5: the first j in 0..n with (u + j a) mod p <= L, or -1. A Product holds p (n + 2).
template <class Product>
static Integer min_hit(Integer p, Integer a, Integer u, Integer n, Integer L) {
    if (L < 0) return -1;
    if (p <= L || u <= L) return 0;
    if (a == 0) return -1;
    const Integer first_run = (p - u + a - 1) / a;  // |S_0|
    if (first_run >= n + 1) return -1;
    if (a == 1) return p - u;
    const Integer r = p % a;
    const Integer k = static_cast<Integer>((u + static_cast<Product>(n) * a) / p);
    const Integer f1 = static_cast<Integer>(u + static_cast<Product>(first_run) * a - p);
    Integer d;
    if (a - r <= a / 2)
        d = min_hit<Product>(a, a - r, f1, k - 1, L);
    else
        d = min_hit<Product>(a, r, (a - f1 + L) % a, k - 1, L);
    if (d == -1) return -1;
    const Product f_hit = (f1 + static_cast<Product>(d) * (a - r)) % a;  // f_(d+1)
    return static_cast<Integer>((static_cast<Product>(d + 1) * p - u + f_hit) / a);
}

static Wide floor_sum(Wide count, Wide modulus, Wide slope, Wide offset) {
    Wide total = 0;
    while (count > 0) {
        total += slope / modulus * (count * (count - 1) / 2) + offset / modulus * count;
        slope %= modulus;
        offset %= modulus;
        const Wide top = slope * count + offset;
        count = top / modulus;
        offset = top % modulus;
        std::swap(modulus, slope);
    }
    return total;
}

// RangeSample: how many j in 0..n have (u + j a) mod p <= L.
static Integer range_sample(Integer p, Integer a, Integer u, Integer n, Integer L) {
    if (L < 0) return 0;
    if (p <= L + 1) return n + 1;
    const Wide below = floor_sum(n + 1, p, a, u);
    const Wide above = floor_sum(n + 1, p, a, static_cast<Wide>(u) + p - 1 - L);
    return static_cast<Integer>(n + 1 + below - above);
}

// ------------------------------------------------------------------------------------ the sketch

struct Entry {
    Integer expiry;
    Element element;
    bool operator<(const Entry& other) const {
        return expiry != other.expiry ? expiry < other.expiry : element.id < other.element.id;
    }
};

struct Level {
    std::set<Entry> sample;           // S_i
    std::unordered_set<Integer> ids;  // of S_i
    Integer watermark = INT64_MIN;    // t_i: nothing discarded yet

    void erase_oldest() {
        ids.erase(sample.begin()->element.id);
        sample.erase(sample.begin());
    }
};

struct Sketch {
    Decay decay;
    std::size_t capacity;  // tau
    Integer max_weight, p, a, b;
    bool closed_form, wide;
    std::vector<Level> levels;  // Algorithm 1
    Integer clock = INT64_MIN;  // c

    bool general() const { return decay.kind == Kind::general; }

    Integer hash_start(Integer id) const {  // h(w_max id)
        return static_cast<Integer>((static_cast<Wide>(a) * (max_weight * id) + b) % p);
    }

    // Algorithm 4 for an element with a hit: t + min{x : f(w, x) <= hit}.
    Integer expiry(const Element& e, Integer hit) const {
        if (closed_form) return e.time + decay.first_age(e.weight, hit);
        Integer left = 0, right = decay.horizon;
        while (right - left > 1) {
            const Integer middle = left + (right - left) / 2;
            if (decay(e.weight, middle) > hit)
                left = middle;
            else
                right = middle;
        }
        return e.time + right;
    }

    void process(const Element& e) {  // Algorithm 2
        if (!general()) clock = std::max(clock, e.time);
        const Integer heaviest = decay(e.weight, 0);
        if (heaviest == 0) return;
        const Integer u = hash_start(e.id);
        for (std::size_t i = 0; i < levels.size(); ++i) {
            Level& level = levels[i];
            if (level.ids.count(e.id)) return;  // a copy
            const Integer n = heaviest - 1, L = (p >> i) - 1;
            const Integer hit =
                wide ? min_hit<Wide>(p, a, u, n, L) : min_hit<Integer>(p, a, u, n, L);
            if (hit == -1) return;  // nor has any higher level one
            const Integer expires = general() ? e.time : expiry(e, hit);
            if (expires > std::max(clock, level.watermark)) {
                level.sample.insert({expires, e});
                level.ids.insert(e.id);
                if (level.sample.size() > capacity) {  // overflow
                    level.watermark = level.sample.begin()->expiry;
                    while (!level.sample.empty() && level.sample.begin()->expiry == level.watermark)
                        level.erase_oldest();
                }
            }
            erase_expired(level);
        }
    }

    void erase_expired(Level& level) {
        if (general()) return;
        while (!level.sample.empty() && level.sample.begin()->expiry <= clock) level.erase_oldest();
    }

    struct Answer {
        double sum = NAN;
        int level = -1;  // there is none: the query fails
    };

    // Algorithm 6 at time c; for the general sketch the window [c - width, c] of section 4.1.
    Answer query(Integer now) {
        if (!general()) {
            clock = std::max(clock, now);
            for (Level& level : levels) erase_expired(level);
        }
        const Integer start = general() ? now - static_cast<Integer>(decay.parameter) : now + 1;
        for (std::size_t i = 0; i < levels.size(); ++i) {
            if (levels[i].watermark >= start) continue;
            Integer hits = 0;
            for (const Entry& entry : levels[i].sample) {
                const Element& e = entry.element;
                if (e.time > now || (general() && e.time < start)) continue;
                const Integer weight = decay(e.weight, now - e.time);
                if (weight == 0) continue;
                hits += range_sample(p, a, hash_start(e.id), weight - 1, (p >> i) - 1);
            }
            const double probability = static_cast<double>(p >> i) / static_cast<double>(p);
            return {hits / probability, static_cast<int>(i)};
        }
        return {};
    }
};

// ----------------------------------------------------------------------------------- the program

using Arguments = std::map<std::string, std::string>;

static const std::string& text(const Arguments& arguments, const std::string& name) {
    const auto found = arguments.find(name);
    if (found == arguments.end()) fail("missing argument " + name + "=");
    return found->second;
}

static Integer integer(const Arguments& arguments, const std::string& name) {
    return std::stoll(text(arguments, name));
}

static std::vector<Element> read_elements(const std::string& path) {
    std::FILE* file = std::fopen(path.c_str(), "rb");
    if (!file) fail("cannot open " + path);
    std::fseek(file, 0, SEEK_END);
    std::vector<Element> elements(static_cast<std::size_t>(std::ftell(file)) / sizeof(Element));
    std::rewind(file);
    if (std::fread(elements.data(), sizeof(Element), elements.size(), file) != elements.size())
        fail("cannot read " + path);
    std::fclose(file);
    return elements;
}

static Integer resident_kilobytes() {  // 0 where the system does not say
    Integer kilobytes = 0;
    char line[256];
    if (std::FILE* file = std::fopen("/proc/self/status", "r")) {
        while (std::fgets(line, sizeof line, file))
            if (std::strncmp(line, "VmRSS:", 6) == 0) kilobytes = std::atoll(line + 6);
        std::fclose(file);
    }
    return kilobytes;
}

static void print_samples(const Sketch& sketch) {
    std::printf(", \"samples\": [");
    for (std::size_t i = 0; i < sketch.levels.size(); ++i) {
        std::printf("%s[%lld, [", i ? ", " : "",
                    static_cast<long long>(sketch.levels[i].watermark));
        bool first = true;
        for (const Entry& entry : sketch.levels[i].sample) {
            const Element& e = entry.element;
            std::printf("%s[%lld, %lld, %lld, %lld, %lld]", first ? "" : ", ",
                        static_cast<long long>(entry.expiry), static_cast<long long>(e.value),
                        static_cast<long long>(e.weight), static_cast<long long>(e.time),
                        static_cast<long long>(e.id));
            first = false;
        }
        std::printf("]]");
    }
    std::printf("]");
}

int main(int count, char** given) {
    Arguments arguments;
    for (int i = 1; i < count; ++i) {
        const std::string argument = given[i];
        const std::size_t sign = argument.find('=');
        if (sign == std::string::npos) fail("expected name=value, got " + argument);
        arguments[argument.substr(0, sign)] = argument.substr(sign + 1);
    }
    std::vector<Element> elements = read_elements(text(arguments, "file"));
    if (arguments.count("rows"))
        elements.resize(std::min<std::size_t>(elements.size(), integer(arguments, "rows")));
    const std::size_t warm =
        arguments.count("warm") ? static_cast<std::size_t>(integer(arguments, "warm")) : 0;
    if (warm > elements.size()) fail("warm exceeds the rows there are");

    const Integer max_weight = integer(arguments, "max_weight"), p = integer(arguments, "p");
    if (p >= Integer{1} << 61) fail("p is not below 2^61");
    const bool fits = p <= INT64_MAX / (max_weight + 2);
    const auto asked = [&](const char* name, const char* value) {
        return arguments.count(name) && arguments.at(name) == value;
    };
    Sketch sketch{make_decay(text(arguments, "decay"),
                             std::stod(text(arguments, "parameter")), max_weight),
                  static_cast<std::size_t>(integer(arguments, "capacity")),
                  max_weight,
                  p,
                  integer(arguments, "a"),
                  integer(arguments, "b"),
                  asked("expiry", "closed"),
                  !fits || asked("arithmetic", "wide"),
                  std::vector<Level>(static_cast<std::size_t>(integer(arguments, "levels")) + 1)};

    const Integer before = resident_kilobytes();
    for (std::size_t i = 0; i < warm; ++i) sketch.process(elements[i]);
    const std::clock_t start = std::clock();  // processor time: what else runs does not count
    for (std::size_t i = warm; i < elements.size(); ++i) sketch.process(elements[i]);
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    const Integer gained = resident_kilobytes() - before;

    std::size_t entries = 0;
    for (const Level& level : sketch.levels) entries += level.sample.size();
    const Sketch::Answer answer = sketch.query(integer(arguments, "now"));
    std::printf("{\"rows\": %zu, \"seconds\": %.9f, \"entries\": %zu, \"kilobytes\": %lld, "
                "\"level\": %d, \"sum\": ",
                elements.size() - warm, seconds, entries, static_cast<long long>(gained),
                answer.level);
    if (answer.level < 0)
        std::printf("null");
    else
        std::printf("%.17g", answer.sum);
    if (arguments.count("dump")) print_samples(sketch);
    std::printf("}\n");
}
