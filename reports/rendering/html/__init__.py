"""Pages for a browser, and tables for a notebook.

page          `render_page`: one self-contained page of any tables, figures and findings
table_data    a table as JSON for the page's script
page.html.jinja, style.css, script.js    the page; jinja2 fills in the template
"""
