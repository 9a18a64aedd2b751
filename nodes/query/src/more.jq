def @text: tostring;
def @sh: [if isarray then .[] end | if isstring then "'" + escape_sh + "'" else tostring end] | join(" ");
def del(f): delpaths([path(f)]);
def flat($depth): .[] | if isarray and $depth > 0 then flat($depth - 1) else . end;
def flatten($depth): if $depth < 0 then error("flatten depth must not be negative") else [flat($depth)] end;
def from_entries: reduce (.[] | {
  (.key // .k // .Key // .K // .name // .Name |
    if isstring then . else error("cannot use " + tojson + " as the key of an object") end):
  (if has("value") then .value elif has("v") then .v elif has("Value") then .Value else .V end) }) as $x ({}; . + $x);
def with_entries(f): to_entries | map(f) | from_entries;
def scan(re; flags): matches(re; "g" + flags)[] | if length > 1 then [.[1:][].string] else .[0].string end;
def scan(re): scan(re; "");
def toarray: if isarray then . else [.] end;
def trimstr($s): ltrimstr($s) | rtrimstr($s);
def leaf_paths: paths(scalars);
def IN(s): any(s == .; .);
def IN(src; s): any(src == s; .);
def INDEX(s; f): reduce s as $x ({}; .[$x | f | tostring] = $x);
def INDEX(f): INDEX(.[]; f);
def cells(text): [.[] |
  if isstring then text
  elif . == null then ""
  elif . >= [] then error("a cell is a text, a number, a boolean or null, and not " + type)
  else tostring end];
def @csv: cells("\"" + gsub("\""; "\"\"") + "\"") | join(",");
def @tsv: cells(gsub("\\\\"; "\\\\") | gsub("\t"; "\\t") | gsub("\n"; "\\n") | gsub("\r"; "\\r")) | join("\t");
