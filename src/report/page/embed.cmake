# embed.cmake -- joins the page of the report into one HTML text and writes it as a C array.
#
#   cmake -D PAGE=src/report/page -D OUT=page.c -P embed.cmake
#
# page.html has the lines <!-- style -->, <!-- script --> and <!-- data --> once each, and a title;
# all *.css and all *.js of the folder take the place of the first two, in order of their names.
# With null for its data the text is the live page; where title and data are in it, is written
# beside it (report/page.h).
cmake_minimum_required(VERSION 3.25)

file(READ ${PAGE}/page.html page)

function(count_of text result) # how often it is in the page
  string(LENGTH "${page}" all)
  string(REPLACE "${text}" "" rest "${page}")
  string(LENGTH "${rest}" left)
  string(LENGTH "${text}" each)
  math(EXPR n "(${all} - ${left}) / ${each}")
  set(${result} ${n} PARENT_SCOPE)
endfunction()

foreach(mark "<!-- style -->" "<!-- script -->" "<!-- data -->" "<title>" "</title>")
  count_of("${mark}" n)
  if(NOT n EQUAL 1)
    message(FATAL_ERROR "${PAGE}/page.html: ${mark} is there ${n} times, expected once")
  endif()
endforeach()

# MARK becomes <TAG> with all files that the pattern names. The files have no say in where they end.
function(join mark tag pattern)
  set(text)
  file(GLOB names ${PAGE}/${pattern})
  list(SORT names)
  foreach(name IN LISTS names)
    file(READ ${name} piece)
    string(TOLOWER "${piece}" lower)
    string(FIND "${lower}" "</${tag}" end)
    if(NOT end EQUAL -1)
      message(FATAL_ERROR "${name}: </${tag} would end the ${tag} that it is in; write it in two parts")
    endif()
    string(REGEX REPLACE "\n +" "\n" piece "${piece}") # every run carries the page: no indentation
    string(APPEND text "${piece}")
  endforeach()
  string(REPLACE "<!-- ${mark} -->" "<${tag}>\n${text}</${tag}>" page "${page}")
  set(page "${page}" PARENT_SCOPE)
endfunction()

# Data first: nothing that a script says can be taken for the mark.
set(data_begin "<script type=\"application/json\" id=\"data\">")
string(REPLACE "<!-- data -->" "${data_begin}null</script>" page "${page}")
join(style style *.css)
join(script script *.js)

function(place text result) # of the byte behind the first `text`
  string(FIND "${page}" "${text}" at)
  string(LENGTH "${text}" n)
  math(EXPR at "${at} + ${n}")
  set(${result} ${at} PARENT_SCOPE)
endfunction()
place("<title>" title)
string(FIND "${page}" "</title>" title_end)
place("${data_begin}" data)
math(EXPR data_end "${data} + 4")
string(LENGTH "${page}" bytes)

file(WRITE ${OUT}.html "${page}")
file(READ ${OUT}.html digits HEX)
string(REPEAT "." 28 line)
string(REGEX REPLACE "(${line})" "\\1\n" digits "${digits}") # 14 bytes a line
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," array "${digits}")
file(WRITE ${OUT} "/* Made by embed.cmake of src/report/page. */
#include \"report/page.h\"
static const char text[] = {
${array}'\\0'};
const fr__page_parts fr__page = {.text = text, .bytes = ${bytes}, .title = ${title},
                          .title_end = ${title_end}, .data = ${data}, .data_end = ${data_end}};
")
