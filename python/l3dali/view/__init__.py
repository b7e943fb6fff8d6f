"""`l3 view`: a page on this machine that shows L3 files.

`catalog` finds files, `pixels` makes pictures of any size, `app` answers HTTP. The page is
page.html, page.js and page.css.
"""
