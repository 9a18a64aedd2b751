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
