"""Computes tests/data/chat_templates/language.json: what jinja2 makes of small templates.

The environment is the one Hugging Face transformers renders chat templates in (jinja2 3.1.6, MarkupSafe). A case that
jinja2 refuses or fails on is recorded as an error, with its text for the reader; the test asks only that the engine
fails too. Run: python3 make_cases.py > ../../data/chat_templates/language.json
"""
import json
import sys
from datetime import datetime

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime(2026, 2, 3, 4, 5, 6)
VARIABLES = {
    "s": "Hello World", "u": "äöü ß 日本 🎉", "e": "", "n": 5, "neg": -7, "f": 2.5, "t": True, "no": False, "nil": None,
    "xs": [3, 1, 2], "names": ["bob", "Alice", "carol"], "d": {"b": 1, "a": [True, None, 1.5], "items": "key"},
    "people": [{"name": "Ann", "age": 30, "city": {"n": "X"}}, {"name": "bob", "age": 25, "city": {"n": "Y"}},
               {"name": "Cid", "age": 30, "city": {"n": "x"}}],
    "nested": [[1, [2, 3]], [4]], "tree": [{"v": 1, "c": [{"v": 2, "c": []}, {"v": 3, "c": [{"v": 4, "c": []}]}]}],
    "multi": "line one\n  line two\n\nline four\n", "quote": "it's \"x\" \\ \t\x07", "html": "<a href='x'>&</a>",
}


class Generation(jinja2.ext.Extension):
    """{% generation %} blocks, without what transformers tracks with them."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: NOW.strftime(f)
    return env


EXPRESSIONS = r"""
1 + 2 * 3 - 4 // 3
2 ** 3 ** 2
-2 ** 2
2 ** -1
7 / 2
-7 // 2
-7 % 3
7 % -3
7.5 // 2
-7.5 % 2
1e16
1e15
1.5e-7
123456789.125
0.1 + 0.2
1_000
0xff
0b101
0o17
1.0
1e300 * 1e10
10 // 0
1 / 0
true + 1
'a' * 3
3 * 'ab'
'a' * -1
[1, 2] * 2
[1] + [2]
(1, 2) + (3,)
[1] + (2,)
'a' + 1
1 + 'a'
'a' ~ 1 ~ none ~ true ~ 1.5
'a' 'b' "c"
1 < 2 < 3
1 < 3 < 2
1 == 1.0
true == 1
'a' < 'b'
'B' < 'a'
[1, 2] < [1, 3]
1 < 'a'
none == none
none < 1
'ell' in 'hello'
2 in [1, 2]
2 not in [1, 2]
'a' in {'a': 1}
1 in 'abc'
'x' in undefined_thing
not 1 == 2
not true and false
1 and 2
0 or 'x'
'' or none
none and 1
1 if true
1 if false
(1 if false) is defined
1 if no else 2 if t else 3
[1, 2, 3][0]
[1, 2, 3][-1]
[1, 2, 3][5]
[1, 2, 3][1:]
[1, 2, 3][::-1]
[1, 2, 3, 4, 5][-4:-1:2]
'hello'[1:3]
'hello'[::-1]
'hello'[-3:]
'hello'[10:]
'hello'[1]
'hello'[-9]
u[0]
u[8]
u[2:5]
u[::2]
u|length
(1, 2, 3)[1:]
range(5)[1:3]|list
{'a': 1}['a']
{'a': 1}.a
{'a': 1}['zz']
{1: 'x', 2.5: 'y', none: 'z', true: 'w'}
{'a': {'b': 2}}.a.b
d.b
d['items']
d.items is callable
d.items()|list
d.keys()|list
d.values()|list
d.get('b')
d.get('zz')
d.get('zz', 9)
d.copy() == d
d.update({'x': 1})
d.pop('b')
d.update is defined
xs.append(4)
xs.index(1)
xs.index(9)
xs.count(3)
xs.copy()
xs.pop()
xs.sort is defined
d.missing
d.missing.more
missing
missing.more
missing['x']
missing()
missing + 1
missing == missing2
missing|length
missing is undefined
nil.x
nil.x is defined
nil['x']
s.foo
s.foo()
n.bit
(1).__class__
s.__class__.__mro__
d.__class__ is defined
[1, 'a', none, true, 1.5, {'b': (1,)}]
(1,)
()
[]
{}
{'a': [1, {'b': none}]}
quote
[quote]
['it\'s', "say \"x\"", 'b\\c', 'tab\t', 'nl\n', '\x7f', 'é', '日本', '\u200b', '🎉']
'\x41\u00e9\U0001F389\101\q'
'a\'b'
[1.0, -0.0, 1e100, 1e-5, 123456.789, 5e-324, 1.7976931348623157e308]
-0.0
3.0 * 2
10 ** 18
10 ** 18 * 2
2 ** 62
xs
names
d
f
t
nil
(none)
True
False
None
'%s and %s' % ('a', 1)
'%d%%' % 5
'%5d|%-5d|%05d|%+d|% d' % (1, 2, 3, 4, 5)
'%.2f|%8.3f|%e|%g|%g' % (1.005, 3.14159, 12345.678, 0.0001, 1e20)
'%x|%X|%o|%#x' % (255, 255, 8, 255)
'%s' % none
'%r' % 'a'
'%s|%r' % (['a'], {'b': 'c'})
'%(a)s-%(b)d' % {'a': 'x', 'b': 3}
'%c%c' % ('a', 66)
'%10s|%-10s|%.2s' % ('ab', 'cd', 'efgh')
'%s %s' % 'a'
'%s' % (1, 2)
'abc' % 1
'%d' % 'x'
'%5.1f%%' % 99.55
'%*d' % (5, 42)
'{} {}'.format(1, 'a')
'{0} {1} {0}'.format('a', 'b')
'{x} {y.b} {z[0]}'.format(x=1, y=d, z=xs)
'{:>8}|{:<8}|{:^8}|{:*^9}'.format('a', 'b', 'c', 'mid')
'{:.3f}|{:10.2f}|{:+d}|{:,}|{:x}|{:#x}|{:08.3f}|{:%}'.format(3.14159, 2.5, 3, 1234567, 255, 255, 3.14159, 0.25)
'{:5d}|{:<5d}|{:^5d}|{:05d}'.format(1, 2, 3, -4)
'{!r} {!s}'.format('a', 'b')
'{{}} {}'.format(1)
'{:{}}'.format('a', 5)
'{}'.format()
'{a}'.format()
'{'.format(1)
'{:.3}'.format('abcdef')
'{:g} {:e} {}'.format(1e10, 12345.6789, 1e10)
'{:d}'.format('a')
'{0.__class__}'.format(1)
s.upper()
s.lower()
s.title()
'hello wORLD it\'s o\'neil'.title()
'ß ŉ ﬁ'.upper()
'ÀÉ Σ ΑΣ'.lower()
'éa'.capitalize()
'ǆa'.capitalize()
'hELLO wORLD'.capitalize()
'aBc'.swapcase()
'  x '.strip()
'xxaxx'.strip('x')
'xyaxy'.strip('yx')
'  x '.lstrip()
'  x '.rstrip()
'\u3000x\u00a0'.strip()
'abc'.lstrip('ab')
'a,b,c'.split(',')
'a,b,c'.split(',', 1)
'a,b,c'.rsplit(',', 1)
' a  b c '.split()
' a  b c '.split(none, 1)
' a  b c '.rsplit(none, 1)
'abc'.split('')
''.split()
''.split(',')
'a<sep>b'.split('<sep>')[-1]
multi.splitlines()
multi.splitlines(true)
'a\r\nb\rc\x0bd'.splitlines()
s.startswith('Hell')
s.startswith(('x', 'H'))
s.startswith('World', 6)
s.endswith('ld')
s.endswith(('a', 'ld'))
s.startswith(1)
s.replace('o', '0')
s.replace('o', '0', 1)
'abc'.replace('', '-')
s.find('o')
s.rfind('o')
s.find('zz')
s.find('o', 5)
u.find('日')
s.index('o')
s.index('zz')
s.rindex('o')
s.count('o')
'aaaa'.count('aa')
'abc'.count('')
', '.join(names)
''.join([1])
'-'.join('abc')
'prefix-x'.removeprefix('prefix-')
'x-suffix'.removesuffix('-suffix')
'x'.removeprefix('y')
['12'.isdigit(), 'a1'.isdigit(), '²'.isdigit(), ''.isdigit()]
['ab'.isalpha(), 'a1'.isalpha(), 'é日'.isalpha()]
['a1'.isalnum(), 'a 1'.isalnum()]
[' \t'.isspace(), ''.isspace()]
['AB'.isupper(), 'Ab'.isupper(), '1'.isupper()]
['ab'.islower(), 'aB'.islower(), '1a'.islower()]
['12'.isdecimal(), '½'.isnumeric(), 'a'.isascii(), 'é'.isascii()]
['42'.zfill(5), '-42'.zfill(5), '+1'.zfill(4), 'abc'.zfill(2)]
['a'.center(4), 'a'.center(5), 'ab'.center(5), 'ab'.center(6, '*'), 'abc'.center(2)]
['a'.ljust(4, '.'), 'a'.rjust(4, '.')]
'a-b-c'.partition('-')
'a-b-c'.rpartition('-')
'abc'.partition('-')
'abc'.rpartition('-')
neg|abs
1.5|abs
'x'|abs
xs|batch(2)|list
xs|batch(2, 'z')|list
range(7)|slice(3)|list
range(7)|slice(3, 'z')|list
'hELLO'|capitalize
'x'|center(5)
'x'|center
xs|count
missing|default('dflt')
missing|d
e|default('dflt')
e|default('dflt', true)
nil|default('x')
nil|default('x', boolean=true)
d|dictsort
{'b': 1, 'A': 2, 'c': 0}|dictsort
{'b': 1, 'A': 2, 'c': 0}|dictsort(true)
{'b': 1, 'A': 2, 'c': 0}|dictsort(false, 'value')
{'b': 1, 'A': 2}|dictsort(reverse=true)
html|escape
html|e
html|forceescape
html|safe
xs|first
[]|first
[]|first is defined
'abc'|first
'abc'|last
[]|last
xs|last
'3.7'|float
'x'|float
'x'|float(1.5)
3|float
' 1e3 '|float
'inf'|float
'nan'|float
'1_0.5'|float
'%s-%s'|format(1, 'b')
'%(x)s'|format(x=3)
people|groupby('age')|length
people|groupby('city.n')|map(attribute='grouper')|list
people|groupby('city.n', case_sensitive=true)|map('first')|list
people|groupby('zz', default='?')|map(attribute='list')|map('length')|list
multi|indent
multi|indent(2, true)
multi|indent('> ', blank=true)
multi|indent(first=true, width=1)
''|indent
'42'|int
'42.9'|int
'abc'|int
'abc'|int(7)
'0x1f'|int(base=16)
'ff'|int(0, 16)
'1_000'|int
' 12 '|int
'-5'|int
3.99|int
-3.99|int
none|int
[]|int(3)
true|int
missing|int
xs|join(',')
xs|join
[1, 'a', none]|join('-')
people|join(', ', attribute='name')
'abc'|join('.')
s|length
d|length
5|length
range(3)|list
'añb'|list
d|list
d|items|list
missing|items|list
5|items|list
'ABC'|lower
5|lower
names|map('upper')|list
people|map(attribute='name')|list
people|map(attribute='zz', default='-')|list
people|map(attribute='city.n')|join
nested|map(attribute='0')|list
xs|map('string')|map('center', 3)|join('|')
names|map('replace', 'o', '0')|list
xs|map('nofilter')|list
xs|max
xs|min
names|max
names|min(case_sensitive=true)
people|max(attribute='age')|tojson
[]|max
[1, 'a']|max
names|reject('equalto', 'bob')|list
xs|reject('odd')|list
people|rejectattr('age', 'gt', 26)|map(attribute='name')|list
people|rejectattr('zz')|list|length
'aXbX'|replace('X', '-')
'aXbX'|replace('X', '-', 1)
5|replace(5, 6)
'abc'|reverse
xs|reverse|list
2.5|round
3.5|round
2.567|round(2)
2.675|round(2)
2.501|round(0, 'ceil')
2.59|round(1, 'floor')
42|round
42.55|round(1)
1234.5|round(-2)
'x'|round
2.5|round(0, 'zz')
xs|select|list
[0, 1, '', 'a', none]|select|list
xs|select('odd')|list
xs|select('>', 1)|list
xs|select('divisibleby', 3)|list
xs|select('in', [1, 2])|list
xs|select('notest')|list
people|selectattr('age', 'equalto', 30)|map(attribute='name')|list
people|selectattr('city.n', 'eq', 'Y')|list|length
people|selectattr('zz', 'undefined')|list|length
people|selectattr('age')|list|length
xs|sort
xs|sort(true)
names|sort
names|sort(case_sensitive=true)
people|sort(attribute='name')|map(attribute='name')|join(' ')
people|sort(attribute='age,name', reverse=true)|map(attribute='name')|join(' ')
[3, 'a']|sort
5|string
1.0|string
none|string
xs|string
xs|sum
people|sum(attribute='age')
xs|sum(start=10)
[[1], [2]]|sum(start=[])
['a']|sum
'hello world-foo (bar) it\'s'|title
'HELLO'|title
{'b': 1, 'a': [true, none, 1.5, '<é>', (1, 2)]}|tojson
d|tojson(indent=2)
d|tojson(indent=0)
d|tojson(indent='\t')
{}|tojson(indent=2)
{'a': [], 'b': {}}|tojson(indent=4)
d|tojson(separators=(',', ':'))
{'b': 1, 'a': 2}|tojson(sort_keys=true)
'é日🎉\x7f\u2028'|tojson(ensure_ascii=true)
'é日🎉\x7f\u2028'|tojson
quote|tojson
'a\x00\x1f/\b\f'|tojson
{1: 2, none: 3, true: 4, 1.5: 5}|tojson
{(1, 2): 3}|tojson
missing|tojson
[missing]|tojson
1e400|tojson
range(3)|tojson
xs|map('string')|tojson
'  x '|trim
'xxaxx'|trim('x')
5|trim
'foo bar baz qux'|truncate(9)
'foo bar baz qux'|truncate(9, true)
'foo bar baz qux'|truncate(11)
'foo bar baz qux'|truncate(11, false, '...', 0)
'foobarbazqux'|truncate(5, end='…', leeway=0)
'äöüäöüäöü'|truncate(5, true, '.', 0)
'x'|truncate(1)
['a', 'A', 'b', 'a']|unique|list
['a', 'A', 'b']|unique(true)|list
people|unique(attribute='age')|map(attribute='name')|list
'aß'|upper
'a b/c?d=é&~'|urlencode
{'a b': 'c/d', 'e': 1}|urlencode
[('x', 'y z')]|urlencode
5|urlencode
'one two, three-four it\'s'|wordcount
'日本 語'|wordcount
people|attr('x')
d|attr('items') is defined
d|attr('b') is defined
xs|map('nope')
(xs|select('odd')) is iterable
(xs|select('gt', 10)) is sequence
'yes' if xs|select('gt', 10) else 'no'
(xs|select('odd'))|length
(xs|select('odd'))[0]
(xs|reverse)|first
missing is defined
s is defined
nil is none
nil is not none
e is none
s is string
n is string
n is number
t is number
n is integer
t is integer
f is integer
f is float
n is float
t is boolean
n is boolean
d is mapping
xs is mapping
xs is iterable
n is iterable
s is iterable
s is sequence
d is sequence
n is sequence
nil is iterable
missing is iterable
missing is sequence
xs is sameas xs
xs is sameas [3, 1, 2]
nil is sameas none
t is sameas true
1 is sameas true
t is true
n is true
1 is true
no is false
0 is false
3 is odd
4 is odd
4 is even
2.0 is even
9 is divisibleby 3
9 is divisibleby(4)
'a' is odd
1 is equalto 1
1 is eq 1.0
1 is ne 2
1 is lt 2
2 is gt 1
1 is le 1
1 is ge 2
1 is lessthan 2
1 is greaterthan 2
2 is in [1, 2]
2 is not in [1, 2]
'a' is in 'abc'
'a' is lower
'A' is upper
5 is lower
range is callable
s is callable
s.upper is callable
'upper' is filter
'zz' is filter
'odd' is test
s is escaped
not missing is defined
1 + 1 is odd
n is not defined or true
t and n is number
'a' is string and 'b' is string
range(3)|list
range(1, 4)|list
range(0, 10, 3)|list
range(5, 0, -2)|list
range(0)|list
range(3)
range(1, 10, 2)
range(1, 2, 0)
range(3) == range(3)
range(100001)|length
range(100000)|length
range('a')
dict(a=1, b='x')
dict({'a': 1}, b=2)
dict([('a', 1), ('b', 2)])
dict([1])
namespace(a=1).a
namespace(a=1)['a']
namespace(a=1).b is defined
namespace({'a': 1}, b=2).b
strftime_now('%Y-%m-%d %H:%M:%S')
strftime_now('%d %b %Y %A %j %-d %p %I %y %% %B')
strftime_now('%f|%z|%Z')
strftime_now('')
raise_exception('boom')
raise_exception()
[1, 2, 3].0
nested.0.1.1
d.a.2
{'a': 1,}.a
[1, 2,]
(1)
(1,)[0]
1,2
1, 
*xs
dict(**{'q': 1})
range(*[1, 4])|list
range(stop=3)
1 +
1 2
foo bar
[1, 2
{'a' 1}
'unterminated
a ? b
a.
a|
a is
1 is odd is even
1|nofilter
1 is notest
s|upper|lower|title
(s|upper)[0:2]
s|upper[0]
-1|abs
-n|abs
- 3
+3
+'a'
-'a'
--3
not not 1
[x for x in xs]
lambda: 1
1 if t else 2 if
s|default
s | replace ( "o" , "0" )
"a" if "b" in "abc" and not "z" in "abc" else "c"
'a' ~ 'b' * 2
1 ~ 2 + 3
1 + 2 ~ 3
2 * 3 ~ 4
'%s' % 1 + 'x'
1 == 1 and 2 == 2 or 3
xs[n - 4]
xs['a']
xs[1.5]
d[xs]
d[nil]
s[none]
s[1:2:0]
s['upper']()
xs[:2] + xs[2:]
names[:-1]|join('|')
people[0].name ~ people[-1]['name']
(people|first).name
'a' < 'b' < 'c'
[[1, 2], [3]] | map('sum') | list
[[1, 2], [3]] | sum(start=[]) | length
loop
caller
9223372036854775807
-9223372036854775807 - 1
true ~ false ~ none
1.0 ~ 2
u.upper() ~ u.title()
'İI'.lower()
'a\nb' | length
"\"" ~ '\''
{'a': 1} == {'a': 1.0}
{'a': 1, 'b': 2} == {'b': 2, 'a': 1}
[1, 2] == (1, 2)
'1' == 1
[] == false
none is none and not none
(1, 2) in [(1, 2)]
{} | length
d | first
'b' in d.keys()
d.items() | length
d.items()[0]
d.values() | sum
d.keys()
d.items()
{'x': 1}.items()
"%s" | format(d)
""" .strip("\n").split("\n")

STATEMENTS = [
    # White space.
    "a\n{% if true %}\nb\n{% endif %}\nc\n",
    "a\n  {% if true %}  \n  b\n  {% endif %}\nc",
    "a\n  {%- if true -%}  \n  b\n  {%- endif -%}\nc",
    "a\n  {%+ if true +%}\n  b\n  {%+ endif +%}\nc",
    "  {% if true %}x{% endif %}",
    "x  {% if true %}y{% endif %}  z",
    "  {{ 1 }}\n  {{ 2 -}}  \n  {{- 3 }}\n",
    "a {#- c -#} b",
    "a\n  {# c #}\nb",
    "a\n  {#+ c +#}\nb",
    "a {# c #} b",
    "a\n{# multi\nline #}\nb",
    "{# c #}\n\nx",
    "{#-#}x",
    "a\r\nb\rc\n",
    "x\n", "x\n\n", "\n", "", "   ",
    "{% raw %}{{ x }}{% y %}{% endraw %}",
    "a\n  {% raw -%}\n  {{ x }}\n  {%- endraw %}\nb",
    "a\n  {% raw %}\n  {{ x }}\n  {% endraw %}\nb",
    "a {%- raw %} x {% endraw -%} b",
    "{% raw %}{% raw %}{% endraw %}",
    "{%- set x = 1 -%}\n\n{{ x }}",
    "{{ '{{' }} {{ '}}' }} {{ '%}' }}",
    "{{ {'a': {'b': 1}}['a']['b'] }}",
    "{{ {'a': {'b': {}}} }}",
    "{ { % } } {", "}} %} #}", "{{1}}}", "{ {{ 1 }} }",
    "{%if true%}x{%endif%}", "{%-if true-%} x {%-endif-%}",
    "{{\n1\n+\n2\n}}",
    "a\n\n  {%- if true %}\n\n  b{% endif %}",
    "{{ 1 }}\n\n{{ 2 }}\n",
    "\t{% if true %}\tx\t{% endif %}\t\n\ty",
    "{% for x in xs %}\n  {{ x }}\n{% endfor %}\nend",
    "{% for x in xs -%}\n  {{ x }}\n{%- endfor %}\nend",
    "{% for x in xs %}{{ x }}{% if not loop.last %}, {% endif %}{% endfor %}",
    # for
    "{% for x in [] %}x{% else %}none{% endfor %}",
    "{% for x in xs %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in xs if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }} {% endfor %}",
    "{% for x in xs if x > 9 %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in xs %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}"
    "{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }};{% endfor %}",
    "{% for x in xs %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}",
    "{% for x in xs %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }} {% endfor %}",
    "{% for x in xs %}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% for x in [1, 1, 2, 2, 1] %}{{ loop.changed(x) }} {% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in d|dictsort %}{{ k }}={{ v }};{% endfor %}",
    "{% for k in d %}{{ k }};{% endfor %}",
    "{% for c in 'añ' %}{{ c }}.{% endfor %}",
    "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for a, b in [(1, 2, 3)] %}{% endfor %}",
    "{% for a, b in [(1,)] %}{% endfor %}",
    "{% for x in 5 %}{% endfor %}",
    "{% for x in none %}{% endfor %}",
    "{% for x in missing %}x{% else %}empty{% endfor %}",
    "{% for x in 1, 2, 3 %}{{ x }}{% endfor %}",
    "{% for x in xs %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in xs %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in xs %}{% for y in xs %}{% if y == 1 %}{% break %}{% endif %}{{ x }}{{ y }} {% endfor %}{% endfor %}",
    "{% for x in xs %}{% break %}{% else %}e{% endfor %}", "{% for x in xs %}{% continue %}{% else %}e{% endfor %}",
    "{% break %}", "{% continue %}",
    "{% for n in tree recursive %}{{ n.v }}{% if n.c %}({{ loop(n.c) }}){% endif %}{{ loop.depth }}{% endfor %}",
    "{% for x in xs %}{{ loop(xs) }}{% endfor %}",
    "{% for x in xs %}{% set y = x %}{% endfor %}{{ y is defined }}",
    "{% set y = 0 %}{% for x in xs %}{% set y = y + x %}{{ y }} {% endfor %}{{ y }}",
    "{% set ns = namespace(y=0) %}{% for x in xs %}{% set ns.y = ns.y + x %}{% endfor %}{{ ns.y }}",
    "{% for x in xs %}{% for y in xs %}{{ loop.index }}{% endfor %}{{ loop.index }} {% endfor %}",
    "{% for x in xs|sort %}{{ x }}{% endfor %}",
    "{% for x in xs|select('odd') %}{{ x }}{{ loop.last }}{% endfor %}",
    "{% for g in people|groupby('age') %}{{ g.grouper }}:{{ g.list|map(attribute='name')|join(',') }};{% endfor %}",
    "{% for age, l in people|groupby('age') %}{{ age }}{{ l|length }} {% endfor %}",
    "{% for x in range(3) %}{{ x }}{% endfor %}",
    "{% for x in xs %}{{ x }}{% endfor %}{{ x is defined }}",
    "{% set x = 'o' %}{% for x in xs %}{{ x }}{% endfor %}{{ x }}",
    "{% for loop_x in xs %}{{ loop.index }}{% endfor %}{{ loop is defined }}",
    "{% for m in messages %}{{ m.role }}:{{ m['content'] }}{% endfor %}",
    "{% for x in xs if x is odd %}{{ x }}{{ loop.nextitem }}{{ loop.revindex }} {% endfor %}",
    "{% set ns = namespace(skip=false) %}{% for x in xs if not ns.skip %}{{ x }}{% set ns.skip = true %}{% endfor %}",
    "{% set ns = namespace(skip=false) %}{% for x in xs if not ns.skip %}{{ x }}{{ loop.last }}{% set ns.skip = true %}"
    "{% endfor %}",
    # if
    "{% if n > 3 %}big{% elif n > 1 %}mid{% else %}small{% endif %}",
    "{% if no %}a{% elif t %}b{% endif %}",
    "{% if missing %}a{% else %}b{% endif %}",
    "{% if [] %}a{% endif %}{% if {} %}b{% endif %}{% if '' %}c{% endif %}{% if 0.0 %}d{% endif %}{% if ' ' %}e{% endif %}",
    "{% if true %}{% set q = 1 %}{% endif %}{{ q }}",
    "{% if no %}{% set q = 1 %}{% endif %}{{ q is defined }}",
    "{% if 1, %}x{% endif %}",
    # set
    "{% set x = 1 %}{{ x }}{% set x = x + 1 %}{{ x }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a, b = [1, 2] %}{{ a + b }}", "{% set (a, b) = 'xy' %}{{ b }}",
    "{% set x = 1, 2 %}{{ x }}",
    "{% set x %}a{{ n }}b{% endset %}{{ x }}{{ x|length }}",
    "{% set x | upper | replace('A', '-') %}abc{% endset %}{{ x }}",
    "{% set x %}{% set y = 1 %}{{ y }}{% endset %}{{ x }}{{ y is defined }}",
    "{% set n.x = 1 %}", "{% set zz.x = 1 %}", "{% set 5 = 1 %}", "{% set none = 1 %}",
    "{% set ns = namespace(a=1, b='x') %}{% set ns.a = 2 %}{% set ns.c = [ns.a] %}{{ ns.a }}{{ ns.b }}{{ ns.c }}",
    "{% set ns = namespace() %}{{ ns.x is defined }}{{ ns.x }}{% set ns.x %}blk{% endset %}{{ ns.x }}",
    "{% set ns = namespace() %}{% set ns.a, ns.b = 1, 2 %}{{ ns.a }}{{ ns.b }}",
    "{% set ns = namespace() %}{{ ns.x.y }}",
    "{% set d2 = {'a': 1} %}{% set d2.a = 2 %}",
    "{% set messages = messages[1:] %}{{ messages|length }}",
    # macro
    "{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ m(1, c=9) }} {{ m(b=1, a=0) }}",
    "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}",
    "{% macro m(a) %}[{{ a }}]{% endmacro %}{{ m() }}{{ m(none) }}",
    "{% macro m(a) %}{{ a.b }}{% endmacro %}{{ m() }}",
    "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(z=1) }}",
    "{% macro m(a) %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, k=4) }}",
    "{% macro m() %}{{ caller() }}!{% endmacro %}{% call m() %}body{% endcall %}",
    "{% macro m() %}{{ caller('x', 2) }}{% endmacro %}{% call(a, b=1) m() %}{{ a }}{{ b }}{% endcall %}",
    "{% macro m(x) %}<{{ x }}{{ caller() if caller else '' }}>{% endmacro %}{{ m(1) }}{% call m(2) %}c{% endcall %}",
    "{% macro m() %}x{% endmacro %}{% call m() %}body{% endcall %}",
    "{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}",
    "{% macro m() %}{{ n }}{{ later }}{% endmacro %}{% set later = 'L' %}{{ m() }}",
    "{% macro m() %}{% set z = 1 %}{{ z }}{% endmacro %}{{ m() }}{{ z is defined }}",
    "{% for x in xs %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% endfor %}",
    "{% macro m() -%}  a  {%- endmacro %}[{{ m() }}]",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m('x') ~ m('y') }}{{ m('z')|upper }}{{ m('q') is string }}",
    "{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(*[1, 2]) }}{{ m(**{'a': 3, 'b': 4}) }}",
    "{% macro m(a=1, b) %}{% endmacro %}",
    "{% macro a() %}A{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}",
    "{% macro m() %}{{ m.name }}{% endmacro %}{{ m() }}",
    "{{ m() }}{% macro m() %}x{% endmacro %}",
    "{% macro m(x) %}{% for y in x %}{{ y }}{% if loop.last %}.{% endif %}{% endfor %}{% endmacro %}{{ m(xs) }}",
    # other blocks
    "{% filter upper %}abc{{ s }}{% endfilter %}", "{% filter replace('a', 'b')|upper %}aXa{% endfilter %}",
    "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}",
    "{% set a = 5 %}{% with a = 1, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}",
    "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q is defined }}",
    "{% print 1, 'a', xs %}",
    "{% generation %}{{ s }}{% set g = 1 %}{% endgeneration %}{{ g is defined }}",
    "{% for x in xs %}{% generation %}{{ x }}{% endgeneration %}{% endfor %}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.next() }}{% set _ = c.reset() %}{{ c.next() }}",
    "{% set j = joiner('|') %}{% for x in xs %}{{ j() }}{{ x }}{% endfor %}", "{% set j = joiner() %}{{ j() }}a{{ j() }}b",
    "{% set g = xs|select('odd') %}{{ g|list }}{{ g|list }}",
    "{% set g = xs|map('string') %}{{ g|first }}{{ g|join }}",
    "{{ raise_exception('x' ~ n) }}", "{% if n == 5 %}{{ raise_exception('five') }}{% endif %}after",
    # bad templates
    "{% if true %}", "{% for x in xs %}", "{% endif %}", "{% else %}", "{% macro m() %}", "{% set x %}", "{{ 1", "{{ 1 }",
    "{% if true", "{# never closed", "{% raw %} x", "{% unknown %}", "{% if true %}{% endfor %}", "{% for in xs %}{% endfor %}",
    "{% for x xs %}{% endfor %}", "{% if %}x{% endif %}", "{{ }}", "{% %}", "{% set = 1 %}", "{{ (1 }}", "{{ 1) }}", "{{ [1} }}",
    "{% for x in xs %}{% else %}{% else %}{% endfor %}", "{{ 'a }}", "{% call 5 %}{% endcall %}", "{% filter nope %}{% endfilter %}",
    "{% if true %}a{% elif %}b{% endif %}", "{{ x y }}", "{% macro 5() %}{% endmacro %}", "{% with a %}{% endwith %}",
    "{{ 1 | }}", "{{ 1 . }}", "{{ a.'b' }}", "{{ f(a=1, 2) }}", "{{ f(*a, *b) }}", "{{ @ }}", "{{ 'x' $ }}", "{{ `x` }}",
    "{{ 1 !== 2 }}", "{{ a := 1 }}", "{{ {1, 2} }}",
    # content is data
    "{{ html }}{{ quote }}", "{{ '{{ 7 * 7 }}' }}", "{{ braces }}",
    "{{ 'line\\\ngoes on' }}", "{{ 'a\r\nb' }}",
    "{{ messages[0].content }}", "{{ messages[0]|tojson }}", "{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}",
]


def run(env, source, variables):
    try:
        out = env.from_string(source).render(
            messages=[{"role": "user", "content": "hi {{ n }}"}], tools=None, documents=None, add_generation_prompt=False,
            **variables)
        return {"template": source, "output": out}
    except Exception as error:  # noqa: BLE001: whatever it is, it is the result.
        return {"template": source, "error": f"{type(error).__name__}: {error}"}


def main():
    env = environment()
    variables = dict(VARIABLES, braces="{{ 7*7 }}{% if x %}")
    templates = ["{{ " + e + " }}" for e in EXPRESSIONS] + STATEMENTS
    cases = [run(env, t, variables) for t in templates]
    cases = [c for c in cases if " at 0x" not in c.get("output", "")]
    json.dump({"variables": variables, "now": NOW.isoformat(), "cases": cases}, sys.stdout, indent=1)
    print()
    print(len(cases), "cases,", sum("error" in c for c in cases), "of them errors", file=sys.stderr)


if __name__ == "__main__":
    main()
