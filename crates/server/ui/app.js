document.getElementById("page").textContent = "Tollgate";
