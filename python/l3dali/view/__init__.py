"""`l3 view`: a page on this machine that shows L3 files.

`catalog` knows where files lie, `pixels` what they look like at any size, `app` answers HTTP. The
page itself is page.html, page.js and page.css.
"""
